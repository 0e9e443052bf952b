package lockordervet

import (
	"go/ast"
	"go/token"
	"go/types"
)

// node is a function, or a variable or field of function type, with everything that it mentions. Who mentions a function may
// call it: a function value is followed from where it is named, not to where it is called.
type node struct {
	obj   types.Object
	uses  []use
	reach reach
}

// use is one mention of a function; or of a connection that is handed over, where there is no function to follow.
type use struct {
	target types.Object
	conn   string
	pos    token.Pos
}

// root is a transaction function: everything in it runs while locks are held.
type root struct {
	from, to token.Pos
	uses     []use
}

// buildGraph reads every function of the package.
func (p *pass) buildGraph() {
	p.graph = map[types.Object]*node{}
	p.findReaders()
	for _, f := range p.files {
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func)
				if !ok || decl.Body == nil {
					continue
				}
				if p.inTransaction(fn.Type()) {
					p.readRoot(decl.Body)
				} else {
					n := p.node(fn)
					p.read(decl.Body, nil, &n.uses)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.ValueSpec); ok {
						p.readVariables(spec)
					}
				}
			}
		}
	}
}

func (p *pass) node(obj types.Object) *node {
	n := p.graph[obj]
	if n == nil {
		n = &node{obj: obj}
		p.graph[obj] = n
		p.nodes = append(p.nodes, n)
	}
	return n
}

// readVariables reads the values of package-level variables: a function is reached by who mentions the variable; what else
// is called runs once, when the program starts, and only its transaction functions matter.
func (p *pass) readVariables(spec *ast.ValueSpec) {
	for i, value := range spec.Values {
		var nobody []use
		into := &nobody
		if len(spec.Values) == len(spec.Names) {
			if obj := p.TypesInfo.Defs[spec.Names[i]]; obj != nil && isFunc(obj.Type()) {
				into = &p.node(obj).uses
			}
		}
		p.read(value, nil, into)
	}
}

func isFunc(t types.Type) bool {
	_, ok := t.Underlying().(*types.Signature)
	return ok
}

func (p *pass) readRoot(body *ast.BlockStmt) {
	r := &root{from: body.Pos(), to: body.End()}
	p.roots = append(p.roots, r)
	p.read(body, r, &r.uses)
}

// read collects what a part of the source mentions. A transaction function in it is a root of its own. A function that is put
// into a field or a variable of this package belongs to that, and is reached by who mentions it.
func (p *pass) read(part ast.Node, in *root, into *[]use) {
	skip := map[ast.Node]bool{}
	ast.Inspect(part, func(n ast.Node) bool {
		if n == nil || skip[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			if p.inTransaction(p.TypesInfo.TypeOf(n)) {
				p.readRoot(n.Body)
				return false
			}
		case *ast.AssignStmt:
			for i, lhs := range n.Lhs {
				if obj := p.holder(lhs); obj != nil {
					skip[lastIdent(lhs)] = true
					if len(n.Lhs) == len(n.Rhs) {
						p.readHeld(obj, n.Rhs[i], in, skip)
					}
				}
			}
		case *ast.CompositeLit:
			p.readFields(n, in, skip)
		case *ast.CallExpr:
			p.readConnections(n, into)
		case *ast.Ident:
			p.readIdent(n, in, into)
		}
		return true
	})
}

// readFields reads the fields of function type that a literal sets.
func (p *pass) readFields(lit *ast.CompositeLit, in *root, skip map[ast.Node]bool) {
	for i, elt := range lit.Elts {
		var field types.Object
		value := elt
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			value = kv.Value
			if key, ok := kv.Key.(*ast.Ident); ok {
				if v, ok := p.TypesInfo.Uses[key].(*types.Var); ok && v.IsField() {
					field = v.Origin()
					skip[key] = true
				}
			}
		} else if s, ok := p.TypesInfo.TypeOf(lit).Underlying().(*types.Struct); ok && i < s.NumFields() {
			field = s.Field(i).Origin()
		}
		if field != nil {
			p.readHeld(field, value, in, skip)
		}
	}
}

// readHeld reads a value that is put into a field or variable. A function is reached by who mentions that, if it is of this
// package; a call that makes the function runs here all the same.
func (p *pass) readHeld(obj types.Object, value ast.Expr, in *root, skip map[ast.Node]bool) {
	if !isFunc(obj.Type()) || obj.Pkg() != p.Pkg {
		return
	}
	p.read(value, in, &p.node(obj).uses)
	if _, called := ast.Unparen(value).(*ast.CallExpr); !called {
		skip[value] = true
	}
}

// holder returns the field or package-level variable of function type, or of a reader, that an expression names, or nil.
func (p *pass) holder(e ast.Expr) types.Object {
	id := lastIdent(e)
	if id == nil {
		return nil
	}
	v, ok := p.TypesInfo.Uses[id].(*types.Var)
	if !ok {
		return nil
	}
	v = v.Origin()
	if !isFunc(v.Type()) && !p.readers[v] || !v.IsField() && (v.Pkg() == nil || v.Parent() != v.Pkg().Scope()) {
		return nil
	}
	return v
}

func lastIdent(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	}
	return nil
}

// readIdent notes a mention of a function, or of a variable that holds one or a reader.
func (p *pass) readIdent(id *ast.Ident, in *root, into *[]use) {
	switch obj := p.TypesInfo.Uses[id].(type) {
	case *types.Func:
		*into = append(*into, use{target: obj.Origin(), pos: id.Pos()})
	case *types.Var:
		obj = obj.Origin()
		global := obj.IsField() || obj.Pkg() != nil && obj.Parent() == obj.Pkg().Scope()
		switch {
		case p.readers[obj] && (global || in != nil && (obj.Pos() < in.from || obj.Pos() > in.to)):
			*into = append(*into, use{conn: "the reader " + obj.Name(), pos: id.Pos()})
		case global && isFunc(obj.Type()):
			*into = append(*into, use{target: obj, pos: id.Pos()})
		}
	}
}

// readConnections notes the connections that a call hands over as something to run statements on.
func (p *pass) readConnections(call *ast.CallExpr, into *[]use) {
	sig, ok := p.TypesInfo.TypeOf(call.Fun).(*types.Signature)
	if !ok {
		return
	}
	for i, arg := range call.Args {
		t := p.TypesInfo.TypeOf(arg)
		if t == nil || !isConnection(t) {
			continue
		}
		last := sig.Params().Len() - 1
		var param types.Type
		switch {
		case i < last || i == last && !sig.Variadic():
			param = sig.Params().At(i).Type()
		case sig.Variadic() && !call.Ellipsis.IsValid():
			param = sig.Params().At(last).Type().(*types.Slice).Elem()
		default:
			continue
		}
		if runsStatements(param) {
			*into = append(*into, use{conn: "the " + types.TypeString(t, types.RelativeTo(p.Pkg)) + " that is handed over", pos: arg.Pos()})
		}
	}
}

func isConnection(t types.Type) bool {
	ptr, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return false
	}
	named, ok := types.Unalias(ptr.Elem()).(*types.Named)
	return ok && connectionTypes.has(pathOf(named.Obj()), named.Obj().Name())
}

// runsStatements tells whether a type is an interface with a method that runs a statement.
func runsStatements(t types.Type) bool {
	iface, ok := t.Underlying().(*types.Interface)
	if !ok {
		return false
	}
	for m := range iface.Methods() {
		switch m.Name() {
		case "Exec", "Query", "QueryRow", "SendBatch", "ExecContext", "QueryContext", "QueryRowContext", "Begin", "BeginTx":
			return true
		}
	}
	return false
}

// findReaders finds the variables and fields that hold what DB.Reader answers.
func (p *pass) findReaders() {
	note := func(to *ast.Ident, value ast.Expr) {
		call, ok := ast.Unparen(value).(*ast.CallExpr)
		if !ok || to == nil {
			return
		}
		id := lastIdent(call.Fun)
		if id == nil {
			return
		}
		fn, ok := p.TypesInfo.Uses[id].(*types.Func)
		if !ok || pathOf(fn) != p.lockpkg || nameOf(fn) != "DB.Reader" {
			return
		}
		if v, ok := p.TypesInfo.ObjectOf(to).(*types.Var); ok {
			p.readers[v.Origin()] = true
		}
	}
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if len(n.Lhs) == len(n.Rhs) {
					for i := range n.Lhs {
						note(lastIdent(n.Lhs[i]), n.Rhs[i])
					}
				}
			case *ast.ValueSpec:
				if len(n.Names) == len(n.Values) {
					for i := range n.Names {
						note(n.Names[i], n.Values[i])
					}
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok {
					note(key, n.Value)
				}
			}
			return true
		})
	}
}
