package standin

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// form is a request's parameters as a tree: items[0][price]=p is items → 0 → price. What a handler reads is marked, so
// that finish can refuse what nothing has read.
type form struct {
	node *node
	name string // full name of this node, as Stripe writes it in errors
	root *formRoot
}

type node struct {
	value string
	leaf  bool
	used  bool
	kids  map[string]*node
	order []string
}

// formRoot collects the first error of all the reads of one request.
type formRoot struct {
	err *apiError
	top *node
}

// parseForm builds the tree. An index that is empty ("expand[]") counts up.
func parseForm(values url.Values) (*form, *apiError) {
	top := &node{}
	for _, key := range sortedKeys(values) {
		path, ok := splitKey(key)
		if !ok {
			return nil, invalid(key, "Invalid parameter name: %s", key)
		}
		for _, v := range values[key] {
			n := top
			for _, part := range path {
				if part == "" {
					part = strconv.Itoa(len(n.order))
				}
				n = n.child(part)
			}
			if n.leaf {
				return nil, invalid(key, "Parameter given twice: %s", key)
			}
			n.value, n.leaf = v, true
		}
	}
	root := &formRoot{top: top}
	return &form{node: top, root: root}, nil
}

func (n *node) child(name string) *node {
	if k, ok := n.kids[name]; ok {
		return k
	}
	if n.kids == nil {
		n.kids = make(map[string]*node)
	}
	k := &node{}
	n.kids[name] = k
	n.order = append(n.order, name)
	return k
}

// splitKey splits "a[b][]" into a, b and "".
func splitKey(key string) ([]string, bool) {
	head, rest, nested := strings.Cut(key, "[")
	if head == "" {
		return nil, false
	}
	path := []string{head}
	if !nested {
		return path, true
	}
	if !strings.HasSuffix(rest, "]") {
		return nil, false
	}
	for _, part := range strings.Split(strings.TrimSuffix(rest, "]"), "][") {
		if strings.ContainsAny(part, "[]") {
			return nil, false
		}
		path = append(path, part)
	}
	return path, true
}

func sortedKeys(values url.Values) []string {
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// full returns the parameter's whole name: items[0][price].
func (f *form) full(name string) string {
	if f.name == "" {
		return name
	}
	return f.name + "[" + name + "]"
}

// fail notes the first error.
func (f *form) fail(err *apiError) {
	if f.root.err == nil {
		f.root.err = err
	}
}

func (f *form) get(name string) (*node, bool) {
	n, ok := f.node.kids[name]
	if ok {
		n.used = true
	}
	return n, ok
}

// has reports whether the parameter was given in any form, the empty string included.
func (f *form) has(name string) bool {
	_, ok := f.get(name)
	return ok
}

// unset reports whether the parameter was given as an empty string, which asks Stripe to clear it.
func (f *form) unset(name string) bool {
	n, ok := f.get(name)
	return ok && n.leaf && n.value == ""
}

// str returns a text parameter, "" when it is not given.
func (f *form) str(name string) string {
	n, ok := f.get(name)
	if !ok {
		return ""
	}
	if !n.leaf {
		f.fail(invalid(f.full(name), "Invalid string: %s must be a string", f.full(name)))
	}
	return n.value
}

// need returns a text parameter that must not be missing or empty.
func (f *form) need(name string) string {
	v := f.str(name)
	if v == "" {
		f.fail(&apiError{status: 400, Type: typeInvalidRequest, Code: "parameter_missing", Param: f.full(name),
			Message: "Missing required param: " + f.full(name) + "."})
	}
	return v
}

// oneOf returns a text parameter that must be one of the words, or not given.
func (f *form) oneOf(name string, words ...string) string {
	v := f.str(name)
	if v != "" && !slices.Contains(words, v) {
		f.fail(invalid(f.full(name), "Invalid %s: must be one of %s", f.full(name), strings.Join(words, ", ")))
	}
	return v
}

// integer returns a whole number, nil when it is not given.
func (f *form) integer(name string) *int64 {
	if !f.has(name) || f.unset(name) {
		return nil
	}
	v, err := strconv.ParseInt(f.str(name), 10, 64)
	if err != nil {
		f.fail(&apiError{status: 400, Type: typeInvalidRequest, Code: "parameter_invalid_integer", Param: f.full(name),
			Message: fmt.Sprintf("Invalid integer: %s", f.str(name))})
		return nil
	}
	return &v
}

// natural returns a whole number that must not be negative, nil when it is not given.
func (f *form) natural(name string) *int64 {
	v := f.integer(name)
	if v != nil && *v < 0 {
		f.fail(invalid(f.full(name), "Invalid non-negative integer"))
		return nil
	}
	return v
}

// boolean returns a truth value, nil when it is not given.
func (f *form) boolean(name string) *bool {
	if !f.has(name) {
		return nil
	}
	switch f.str(name) {
	case "true":
		v := true
		return &v
	case "false":
		v := false
		return &v
	}
	f.fail(invalid(f.full(name), "Invalid boolean: %s", f.str(name)))
	return nil
}

// moment returns a Unix time, zero when it is not given.
func (f *form) moment(name string) time.Time {
	v := f.integer(name)
	if v == nil {
		return time.Time{}
	}
	return time.Unix(*v, 0).UTC()
}

// sub returns a nested parameter group, nil when it is not given.
func (f *form) sub(name string) *form {
	n, ok := f.get(name)
	if !ok {
		return nil
	}
	if n.leaf && n.value != "" {
		f.fail(invalid(f.full(name), "Invalid object"))
		return nil
	}
	return &form{node: n, name: f.full(name), root: f.root}
}

// list returns the elements of an array of groups, in the order of their indexes.
func (f *form) list(name string) []*form {
	g := f.sub(name)
	if g == nil {
		return nil
	}
	var out []*form
	for _, i := range g.indexes() {
		n, _ := g.get(i)
		if n.leaf {
			f.fail(invalid(g.full(i), "Invalid object"))
			continue
		}
		out = append(out, &form{node: n, name: g.full(i), root: f.root})
	}
	return out
}

// strs returns the elements of an array of texts, in the order of their indexes.
func (f *form) strs(name string) []string {
	g := f.sub(name)
	if g == nil {
		return nil
	}
	var out []string
	for _, i := range g.indexes() {
		out = append(out, g.str(i))
	}
	return out
}

// indexes returns the children's names, which must be numbers, in numeric order.
func (f *form) indexes() []string {
	names := slices.Clone(f.node.order)
	for _, n := range names {
		if _, err := strconv.Atoi(n); err != nil {
			f.fail(invalid(f.name, "Invalid array"))
			return nil
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		x, _ := strconv.Atoi(a)
		y, _ := strconv.Atoi(b)
		return x - y
	})
	return names
}

// metadata applies the metadata parameter to old and returns the result: a key with an empty value goes, an empty
// parameter clears all.
func (f *form) metadata(old map[string]string) map[string]string {
	next := make(map[string]string, len(old))
	for k, v := range old {
		next[k] = v
	}
	if f.unset("metadata") {
		return map[string]string{}
	}
	g := f.sub("metadata")
	if g == nil {
		return next
	}
	for _, k := range g.node.order {
		if v := g.str(k); v == "" {
			delete(next, k)
		} else {
			next[k] = v
		}
	}
	return next
}

// ignore accepts parameters that change nothing that the stand-in models, such as how a proration is billed.
func (f *form) ignore(names ...string) {
	for _, name := range names {
		if n, ok := f.get(name); ok {
			n.use()
		}
	}
}

func (n *node) use() {
	n.used = true
	for _, k := range n.kids {
		k.use()
	}
}

// finish returns the first error of the reads, or the refusal of a parameter that nothing has read. A handler calls it
// before it changes anything.
func (f *form) finish() *apiError {
	if f.root.err != nil {
		return f.root.err
	}
	if name, found := f.root.top.unread(""); found {
		return &apiError{status: 400, Type: typeInvalidRequest, Code: "parameter_unknown", Param: name,
			Message: "Received unknown parameter: " + name}
	}
	return nil
}

func (n *node) unread(name string) (string, bool) {
	for _, k := range n.order {
		kid, full := n.kids[k], k
		if name != "" {
			full = name + "[" + k + "]"
		}
		if !kid.used {
			return full, true
		}
		if deeper, found := kid.unread(full); found {
			return deeper, true
		}
	}
	return "", false
}
