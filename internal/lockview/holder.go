package lockview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"go.temporal.io/sdk/activity"
)

// Holder is who runs a transaction: a workflow through one of its activities, or a command, and the path it is on.
type Holder struct {
	// Workflow is the workflow's id, or "cmd/" and the words of a command, or the name of a process.
	Workflow string `json:"workflow"`
	// Path is the name of the path, as lockorder.Spec has it.
	Path string `json:"path"`
	// Cut says that Workflow is only the beginning of an id that was too long.
	Cut bool `json:"workflow_cut,omitempty"`
}

// command is what Workflow begins with where a command holds the locks.
const command = "cmd/"

// Command is the fallback that Namer is given by a command: "cmd/org create".
func Command(words string) string { return command + words }

// IsWorkflow tells whether the holder is a workflow, which Temporal can show.
func (h Holder) IsWorkflow() bool {
	return !strings.HasPrefix(h.Workflow, command) && strings.ContainsAny(h.Workflow, "/-")
}

// String names the holder for a person.
func (h Holder) String() string {
	switch {
	case h.Workflow == "": // known by the comment of a statement only
		return h.Path
	case h.Cut:
		return h.Workflow + "… · " + h.Path
	}
	return h.Workflow + " · " + h.Path
}

// Object is what the workflow is about, by the form of its id: "sub_1" of "subscription/sub_1"; "" where it says none.
func (h Holder) Object() string {
	_, object, _ := strings.Cut(h.Workflow, "/")
	if h.Cut || strings.HasPrefix(h.Workflow, command) {
		return ""
	}
	return object
}

// area is the word before Object: "subscription" of "subscription/sub_1".
func (h Holder) area() string {
	area, _, _ := strings.Cut(h.Workflow, "/")
	return area
}

// An application_name is "<workflow>#<path>". It has 63 bytes: where that is not enough the path is shortened, and only
// then the workflow's id. A shortened path is its beginning and "~" where that is the beginning of no other path, else "~"
// and the first hash digits of the whole; both lead back to it. A shortened id ends with "~".
const (
	maxName  = 63
	nameMark = "#"
	cutMark  = "~"
	hashed   = 4 // digits of a path's hash
)

// Namer returns the function for lockorder.Options.Holder: inside an activity it names the activity's workflow, elsewhere
// the fallback (a process, or a Command), and the path.
func Namer(fallback string) func(ctx context.Context, path string) string {
	return func(ctx context.Context, path string) string {
		h := Holder{Workflow: fallback, Path: path}
		if activity.IsActivity(ctx) {
			if id := activity.GetInfo(ctx).WorkflowExecution.ID; id != "" {
				h.Workflow = id
			}
		}
		return h.name(pathNames())
	}
}

// name writes a holder as an application_name.
func (h Holder) name(known []string) string {
	if n := len(h.Workflow) + len(nameMark) + len(h.Path); n <= maxName {
		return h.Workflow + nameMark + h.Path
	}
	room := maxName - len(h.Workflow) - len(nameMark)
	if least := len(cutMark) + hashed; room < least {
		h.Workflow = h.Workflow[:maxName-len(cutMark)-len(nameMark)-least] + cutMark
		room = least
	}
	return h.Workflow + nameMark + shorten(h.Path, room, known)
}

// shorten writes a path in room bytes, of which there are enough for a hash.
func shorten(path string, room int, known []string) string {
	if len(path) <= room {
		return path
	}
	if short := path[:room-len(cutMark)] + cutMark; lengthen(short, known) == path {
		return short
	}
	return pathHash(path)
}

// lengthen returns the path that a shortened one stands for, or the text itself where no known path, or more than one,
// fits.
func lengthen(short string, known []string) string {
	begins, isPrefix := strings.CutSuffix(short, cutMark)
	isHash := strings.HasPrefix(short, cutMark)
	if !isPrefix && !isHash {
		return short
	}
	fits := ""
	for _, path := range known {
		if isHash && pathHash(path) == short || isPrefix && !isHash && strings.HasPrefix(path, begins) {
			if fits != "" {
				return short
			}
			fits = path
		}
	}
	if fits == "" {
		return short
	}
	return fits
}

func pathHash(path string) string {
	sum := sha256.Sum256([]byte(path))
	return cutMark + hex.EncodeToString(sum[:])[:hashed]
}

// shortPath is what follows the mark: a path, its beginning, or its hash.
var shortPath = regexp.MustCompile(`^([a-z][a-z0-9-]*~?|~[0-9a-f]{4})$`)

// ParseHolder reads an application_name. It answers false for one that is not a holder's: the session is another
// application's, or is in no transaction.
func ParseHolder(name string) (Holder, bool) { return parseHolder(name, pathNames()) }

func parseHolder(name string, known []string) (Holder, bool) {
	at := strings.LastIndex(name, nameMark)
	if at < 1 || !shortPath.MatchString(name[at+1:]) {
		return Holder{}, false
	}
	h := Holder{Workflow: name[:at], Path: lengthen(name[at+1:], known)}
	h.Workflow, h.Cut = strings.CutSuffix(h.Workflow, cutMark)
	return h, h.Workflow != ""
}
