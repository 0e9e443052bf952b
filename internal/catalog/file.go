package catalog

import (
	"errors"
	"regexp"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/bursarhq/bursar/entitlements"
)

// File is a catalogue file that has been read. What is wrong with it is reported by Plan and Apply, together with what
// shows only beside the database.
type File struct {
	// Name is the file's name, for messages.
	Name string

	keys     []keyEntry
	sets     []setEntry
	products []productEntry
	ladders  []ladderEntry
	types    []typeEntry
	problems problems
}

type keyEntry struct {
	line int
	entitlements.ResourceKey
}

type setEntry struct {
	id, name text
	rules    []ruleEntry
}

type ruleEntry struct {
	key   text
	value entitlements.Value
}

type productEntry struct {
	id, name                     text
	sets, prices, stripeProducts []text
}

type ladderEntry struct {
	id, name text
	tiers    []text
}

type typeEntry struct {
	id, name, standard text
}

var (
	keyPattern    = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$`)
	stripePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// maxKey is the longest name that a resource key may have.
const maxKey = 100

// Parse reads a catalogue file. It answers *Problems only when the text is no YAML; anything else is kept, so that all
// problems can be told at once.
func Parse(name string, data []byte) (*File, error) {
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		line := 1
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			line = syntax.GetToken().Position.Line
			return nil, problems{{line, "this is not YAML: " + syntax.GetMessage()}}.err(name)
		}
		return nil, problems{{line, "this is not YAML: " + err.Error()}}.err(name)
	}
	f := &File{Name: name}
	r := &reader{}
	var body ast.Node
	for _, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			r.add(lineOf(doc.Body), "a second document begins here; put everything in one")
			continue
		}
		body = doc.Body
	}
	top := r.known(body, "the file", "resource_keys", "sets", "products", "ladders", "organization_types")
	for _, n := range r.mappings(top["resource_keys"], "resource_keys") {
		f.keys = append(f.keys, r.resourceKey(n))
	}
	for _, n := range r.mappings(top["sets"], "sets") {
		f.sets = append(f.sets, r.set(n))
	}
	for _, n := range r.mappings(top["products"], "products") {
		f.products = append(f.products, r.product(n))
	}
	for _, n := range r.mappings(top["ladders"], "ladders") {
		f.ladders = append(f.ladders, r.ladder(n))
	}
	for _, n := range r.mappings(top["organization_types"], "organization_types") {
		f.types = append(f.types, r.organizationType(n))
	}
	f.problems = r.problems
	return f, nil
}

func (r *reader) resourceKey(n ast.Node) keyEntry {
	fields := r.known(n, "a resource key", "key", "kind", "aggregation", "window", "description")
	k := keyEntry{line: lineOf(n)}
	name := r.text(fields["key"], "the key of a resource key")
	switch {
	case isNull(fields["key"]):
		r.add(k.line, "a resource key has no key; give it one: key: storage.gigabytes")
	case name.value != "" && (!keyPattern.MatchString(name.value) || len(name.value) > maxKey):
		r.add(name.line, "%q cannot be a resource key: use words of a-z, 0-9 and _ joined by dots, beginning with a letter, at most %d in all", name.value, maxKey)
	}
	k.Key = name.value
	what := "resource key " + k.Key
	if k.Key == "" {
		what = "this resource key"
	}
	if isNull(fields["kind"]) {
		r.add(k.line, "%s has no kind; it is one of: numeric, boolean", what)
	}
	k.Kind = r.oneOf(fields["kind"], "the kind of "+what, entitlements.Numeric, entitlements.Boolean)
	k.Window = r.oneOf(fields["window"], "the window of "+what, "none", "day", "month")
	k.Description = r.text(fields["description"], "the description of "+what).value
	if k.Kind == entitlements.Boolean {
		k.Aggregation = "max"
		for _, name := range []string{"aggregation", "window"} {
			if !isNull(fields[name]) && (name == "aggregation" || k.Window != "none") {
				r.add(lineOf(fields[name]), "%s is boolean and has no %s; take it out", what, name)
			}
		}
		k.Window = "none"
		return k
	}
	k.Aggregation = r.oneOf(fields["aggregation"], "the aggregation of "+what, "sum", "max")
	return k
}

// named reads the id and the name of an object; the name is the id where none is given.
func (r *reader) named(fields map[string]ast.Node, line int, what string) (id, name text) {
	id = r.slug(fields["id"], line, what)
	name = r.text(fields["name"], "the name of "+what+" "+id.value)
	if name.value == "" {
		name.value = id.value
	}
	return id, name
}

func (r *reader) set(n ast.Node) setEntry {
	fields := r.known(n, "a set", "id", "name", "rules")
	var s setEntry
	s.id, s.name = r.named(fields, lineOf(n), "set")
	for _, f := range r.entries(fields["rules"], "the rules of set "+s.id.value) {
		s.rules = append(s.rules, ruleEntry{f.key, r.value(f.node, f.key.value)})
	}
	return s
}

func (r *reader) product(n ast.Node) productEntry {
	fields := r.known(n, "a product", "id", "name", "sets", "stripe")
	var p productEntry
	p.id, p.name = r.named(fields, lineOf(n), "product")
	p.sets = r.texts(fields["sets"], "the sets of product "+p.id.value)
	stripe := r.known(fields["stripe"], "stripe of product "+p.id.value, "prices", "products")
	p.prices = r.stripeIDs(stripe["prices"], "the Stripe prices of product "+p.id.value)
	p.stripeProducts = r.stripeIDs(stripe["products"], "the Stripe products of product "+p.id.value)
	return p
}

func (r *reader) stripeIDs(n ast.Node, what string) []text {
	ids := r.texts(n, what)
	for _, id := range ids {
		if !stripePattern.MatchString(id.value) {
			r.add(id.line, "%q is not a Stripe id", id.value)
		}
	}
	return ids
}

func (r *reader) ladder(n ast.Node) ladderEntry {
	fields := r.known(n, "a ladder", "id", "name", "tiers")
	var l ladderEntry
	l.id, l.name = r.named(fields, lineOf(n), "ladder")
	l.tiers = r.texts(fields["tiers"], "the tiers of ladder "+l.id.value)
	return l
}

func (r *reader) organizationType(n ast.Node) typeEntry {
	fields := r.known(n, "an organisation type", "id", "name", "default")
	var t typeEntry
	t.id, t.name = r.named(fields, lineOf(n), "organisation type")
	t.standard = r.text(fields["default"], "the default of organisation type "+t.id.value)
	return t
}
