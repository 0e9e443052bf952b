package catalog

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/bursarhq/bursar/entitlements"
)

// text is a string of the file and where it stands.
type text struct {
	line  int
	value string
}

// field is one entry of a mapping.
type field struct {
	key  text
	node ast.Node
}

// reader reads nodes and collects what is wrong with them. Reading goes on after a problem, with a zero value.
type reader struct{ problems }

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 1
	}
	return n.GetToken().Position.Line
}

func isNull(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return n == nil || null
}

// describe names what a node is, for a person.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number that is not whole"
	case *ast.BoolNode:
		return "a boolean"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias, which this file may not use"
	case *ast.TagNode:
		return "a tag, which this file may not use"
	}
	return "nothing"
}

// entries returns the entries of a mapping; none for an empty node.
func (r *reader) entries(n ast.Node, what string) []field {
	if isNull(n) {
		return nil
	}
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		r.add(lineOf(n), "%s must be a mapping (name: value), not %s", what, describe(n))
		return nil
	}
	fields := make([]field, 0, len(values))
	for _, v := range values {
		key, ok := v.Key.(ast.ScalarNode)
		if !ok {
			r.add(lineOf(v), "%s has a name that is not text", what)
			continue
		}
		name := key.GetToken().Value
		fields = append(fields, field{text{lineOf(v.Key), name}, v.Value})
	}
	return fields
}

// known returns the fields of a mapping by name, and reports those that are not among the names.
func (r *reader) known(n ast.Node, what string, names ...string) map[string]ast.Node {
	byName := map[string]ast.Node{}
	for _, f := range r.entries(n, what) {
		if !slices.Contains(names, f.key.value) {
			r.add(f.key.line, "%s has no field %q; it has: %s", what, f.key.value, strings.Join(names, ", "))
			continue
		}
		byName[f.key.value] = f.node
	}
	return byName
}

// list returns the nodes of a list; none for an empty node.
func (r *reader) list(n ast.Node, what string) []ast.Node {
	if isNull(n) {
		return nil
	}
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		r.add(lineOf(n), "%s must be a list, not %s", what, describe(n))
		return nil
	}
	return s.Values
}

// mappings returns the entries of a list of which each must be a mapping; what is none is reported and left out.
func (r *reader) mappings(n ast.Node, what string) []ast.Node {
	var out []ast.Node
	for _, one := range r.list(n, what) {
		switch one.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			out = append(out, one)
		default:
			r.add(lineOf(one), "each of %s must be a mapping (name: value), not %s", what, describe(one))
		}
	}
	return out
}

// text returns a string, empty for an empty node.
func (r *reader) text(n ast.Node, what string) text {
	if isNull(n) {
		return text{line: lineOf(n)}
	}
	switch s := n.(type) {
	case *ast.StringNode:
		return text{lineOf(n), s.Value}
	case *ast.LiteralNode:
		return text{lineOf(n), strings.TrimSpace(s.Value.Value)}
	}
	r.add(lineOf(n), "%s must be text, not %s; put it in quotes if it is meant as text", what, describe(n))
	return text{line: lineOf(n)}
}

func (r *reader) texts(n ast.Node, what string) []text {
	var out []text
	for _, one := range r.list(n, what) {
		if t := r.text(one, "each of "+what); t.value != "" {
			out = append(out, t)
		} else if isNull(one) {
			r.add(lineOf(one), "%s has an empty entry; take it out", what)
		}
	}
	return out
}

// slug returns the required id of an object.
func (r *reader) slug(n ast.Node, line int, what string) text {
	id := r.text(n, "the id of a "+what)
	switch {
	case isNull(n):
		r.add(line, "a %s has no id; give it one: id: some-name", what)
		id.line = line
	case id.value != "" && !entitlements.ValidSlug(id.value):
		r.add(id.line, "%q cannot be the id of a %s: use 1 to 63 of a-z, 0-9 and hyphen, not beginning with a hyphen", id.value, what)
	}
	return id
}

// oneOf returns a word that must be among the choices, the first of which stands for an empty one.
func (r *reader) oneOf(n ast.Node, what string, choices ...string) string {
	if isNull(n) {
		return choices[0]
	}
	t := r.text(n, what)
	if t.value != "" && !slices.Contains(choices, t.value) {
		r.add(t.line, "%s cannot be %q; it is one of: %s", what, t.value, strings.Join(choices, ", "))
		return choices[0]
	}
	return t.value
}

// value returns the value of a rule.
func (r *reader) value(n ast.Node, key string) entitlements.Value {
	switch v := n.(type) {
	case *ast.BoolNode:
		return entitlements.Yes(v.Value)
	case *ast.IntegerNode:
		number, ok := v.Value.(uint64)
		if !ok || number > entitlements.MaxNumber {
			r.add(lineOf(n), "the value of %s is out of range: it is 0 to %d", key, int64(entitlements.MaxNumber))
			return entitlements.Value{}
		}
		return entitlements.Number(int64(number))
	}
	r.add(lineOf(n), "the value of %s must be a whole number, true or false, not %s", key, describe(n))
	return entitlements.Value{}
}
