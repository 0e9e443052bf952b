package lockordervet

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// class is a class of locks as lockorder's table has it.
type class struct {
	Name string
	Rank int64
}

// classFact is the class that a variable of lockorder is.
type classFact struct{ Class class }

// locksFact says of a function that answers locks which classes they are of: always those, or the one that is the argument at
// Param, where that is not -1.
type locksFact struct {
	Classes []class
	Param   int
}

func (*classFact) AFact()           {}
func (*locksFact) AFact()           {}
func (f *classFact) String() string { return "class:" + f.Class.Name }

func (f *locksFact) String() string {
	if f.Param >= 0 {
		return "locks of the class given"
	}
	names := make([]string, len(f.Classes))
	for i, c := range f.Classes {
		names[i] = c.Name
	}
	return "locks:" + strings.Join(names, ",")
}

// exportClasses reads the table of classes, where the package is lockorder, and what its functions make of it.
func (p *pass) exportClasses() {
	if p.Pkg.Path() != p.lockpkg {
		return
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					obj := p.TypesInfo.Defs[name]
					if c, ok := p.classLiteral(spec.Values[i]); ok && obj.Parent() == p.Pkg.Scope() {
						p.ExportObjectFact(obj, &classFact{c})
					}
				}
			}
			return true
		})
	}
	p.exportLocks()
}

// classLiteral reads &Class{Name: …, Rank: …}.
func (p *pass) classLiteral(e ast.Expr) (class, bool) {
	ptr, ok := ast.Unparen(e).(*ast.UnaryExpr)
	if !ok {
		return class{}, false
	}
	lit, ok := ptr.X.(*ast.CompositeLit)
	if !ok || !p.ofLockpkg(p.TypesInfo.TypeOf(lit), "Class") {
		return class{}, false
	}
	var c class
	ranked := false
	for _, elt := range lit.Elts {
		kv, ok := elt.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := kv.Key.(*ast.Ident)
		value := p.TypesInfo.Types[kv.Value].Value
		if key == nil || value == nil {
			continue
		}
		switch key.Name {
		case "Name":
			c.Name = constant.StringVal(value)
		case "Rank":
			c.Rank, ranked = constant.Int64Val(value)
		}
	}
	return c, ranked
}

// exportLocks finds the functions that answer locks of classes that are known. One may call another, so it looks until
// it finds no more.
func (p *pass) exportLocks() {
	p.findAssignments()
	for changed := true; changed; {
		changed = false
		for _, f := range p.files {
			for _, decl := range f.Decls {
				decl, ok := decl.(*ast.FuncDecl)
				if !ok || decl.Body == nil {
					continue
				}
				fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func)
				if !ok || p.ImportObjectFact(fn, new(locksFact)) {
					continue
				}
				if fact := p.locksOf(fn, decl.Body); fact != nil {
					p.ExportObjectFact(fn, fact)
					changed = true
				}
			}
		}
	}
}

// locksOf finds out which classes a function answers locks of, or nil.
func (p *pass) locksOf(fn *types.Func, body *ast.BlockStmt) *locksFact {
	results := fn.Signature().Results()
	if results.Len() == 0 || !p.isLocks(results.At(0).Type()) {
		return nil
	}
	i := 0
	for v := range fn.Signature().Params().Variables() {
		if p.ofLockpkg(v.Type(), "Class") {
			return &locksFact{Param: i}
		}
		i++
	}
	var all []class
	known := true
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) != results.Len() {
				known = false
				return false
			}
			found := p.classesOf(n.Results[0])
			known = known && (found != nil || isZero(n.Results[0]))
			all = union(all, found)
		}
		return true
	})
	if !known || all == nil {
		return nil
	}
	return &locksFact{Classes: all, Param: -1}
}

// isZero tells whether an expression is nil or an empty literal, which locks nothing.
func isZero(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name == "nil"
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	}
	return false
}

// isLocks tells whether a type is a Lock or a slice of them.
func (p *pass) isLocks(t types.Type) bool {
	if slice, ok := t.Underlying().(*types.Slice); ok {
		t = slice.Elem()
	}
	if _, ok := types.Unalias(t).(*types.Pointer); ok {
		return false
	}
	return p.ofLockpkg(t, "Lock")
}

// classesOf returns the classes of the locks that an expression stands for; none where they cannot be told.
func (p *pass) classesOf(e ast.Expr) []class { return p.classesIn(e, map[types.Object]bool{}) }

func (p *pass) classesIn(e ast.Expr, seen map[types.Object]bool) []class {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		return p.classesOfCall(e, seen)
	case *ast.CompositeLit:
		var all []class
		for _, elt := range e.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				elt = kv.Value
			}
			all = union(all, p.classesIn(elt, seen))
		}
		return all
	case *ast.IndexExpr:
		return p.classesIn(e.X, seen)
	case *ast.SliceExpr:
		return p.classesIn(e.X, seen)
	case *ast.Ident:
		obj := p.TypesInfo.ObjectOf(e)
		if obj == nil || seen[obj] || !p.isLocks(obj.Type()) {
			return nil
		}
		seen[obj] = true
		var all []class
		for _, value := range p.assigned[obj] {
			all = union(all, p.classesIn(value, seen))
		}
		if len(all) > 1 {
			return nil // which of them it holds depends on where one looks
		}
		return all
	}
	return nil
}

func (p *pass) classesOfCall(call *ast.CallExpr, seen map[types.Object]bool) []class {
	switch callee := typeutil.Callee(p.TypesInfo, call).(type) {
	case *types.Builtin:
		if callee.Name() != "append" {
			return nil
		}
		var all []class
		for _, arg := range call.Args {
			all = union(all, p.classesIn(arg, seen))
		}
		return all
	case *types.Func:
		var fact locksFact
		if !p.ImportObjectFact(callee.Origin(), &fact) {
			return nil
		}
		if fact.Param < 0 {
			return fact.Classes
		}
		if fact.Param < len(call.Args) {
			if id := lastIdent(call.Args[fact.Param]); id != nil {
				var c classFact
				if obj := p.TypesInfo.Uses[id]; obj != nil && obj.Pkg() != nil && p.ImportObjectFact(obj, &c) {
					return []class{c.Class}
				}
			}
		}
	}
	return nil
}

func union(a, b []class) []class {
	for _, c := range b {
		if !slices.Contains(a, c) {
			a = append(a[:len(a):len(a)], c)
		}
	}
	slices.SortFunc(a, func(x, y class) int { return cmp.Compare(x.Rank, y.Rank) })
	return a
}

// findAssignments notes what the variables that hold locks are set to.
func (p *pass) findAssignments() {
	p.assigned = map[types.Object][]ast.Expr{}
	note := func(to, value ast.Expr) {
		if index, ok := ast.Unparen(to).(*ast.IndexExpr); ok {
			to = index.X
		}
		if id, ok := ast.Unparen(to).(*ast.Ident); ok {
			if obj := p.TypesInfo.ObjectOf(id); obj != nil && p.isLocks(obj.Type()) {
				p.assigned[obj] = append(p.assigned[obj], value)
			}
		}
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i := range n.Lhs {
					if len(n.Lhs) == len(n.Rhs) {
						note(n.Lhs[i], n.Rhs[i])
					} else if i == 0 {
						note(n.Lhs[0], n.Rhs[0])
					}
				}
			case *ast.ValueSpec:
				for i := range n.Values {
					if len(n.Names) == len(n.Values) {
						note(n.Names[i], n.Values[i])
					}
				}
			case *ast.RangeStmt:
				if n.Value != nil {
					note(n.Value, n.X)
				}
			}
			return true
		})
	}
}
