package lockordervet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// takesFact says of a function that is given a transaction which classes it may take locks of.
type takesFact struct{ Classes []class }

func (*takesFact) AFact() {}

func (f *takesFact) String() string {
	names := make([]string, len(f.Classes))
	for i, c := range f.Classes {
		names[i] = c.Name
	}
	return "takes:" + strings.Join(names, ",")
}

// exportTakes finds out which locks the functions take that are given a transaction, through each other too.
func (p *pass) exportTakes() {
	for changed := true; changed; {
		changed = false
		for _, f := range p.files {
			for _, decl := range f.Decls {
				decl, ok := decl.(*ast.FuncDecl)
				if !ok || decl.Body == nil {
					continue
				}
				fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func)
				if !ok || !p.inTransaction(fn.Type()) {
					continue
				}
				var before takesFact
				p.ImportObjectFact(fn, &before)
				after := p.takenIn(decl.Body)
				if len(after) > len(before.Classes) {
					p.ExportObjectFact(fn, &takesFact{after})
					changed = true
				}
			}
		}
	}
}

// takenIn returns the classes of the locks that are taken somewhere in a function.
func (p *pass) takenIn(body *ast.BlockStmt) []class {
	var all []class
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit: // one with a transaction of its own is given that by Run
			return !p.inTransaction(p.TypesInfo.TypeOf(n))
		case *ast.CallExpr:
			if args, ok := p.askedFor(n); ok {
				for _, arg := range args {
					all = union(all, p.classesOf(arg))
				}
			} else if _, classes := p.takenBy(n); classes != nil {
				all = union(all, classes)
			}
		}
		return true
	})
	return all
}

// askedFor returns the locks that a call asks a transaction for, where it does that.
func (p *pass) askedFor(call *ast.CallExpr) (locks []ast.Expr, ok bool) {
	fn := p.method(call)
	if fn == nil || receiver(fn) != "Tx" {
		return nil, false
	}
	switch n := len(call.Args); fn.Name() {
	case "Lock", "LockExisting":
		return call.Args[min(1, n):], true
	case "LockOrMake":
		return call.Args[min(1, n):min(2, n)], true
	}
	return nil, false
}

// takenBy returns the classes that a call may take because it hands over a transaction, which is given as it is written.
func (p *pass) takenBy(call *ast.CallExpr) (tx string, classes []class) {
	fn, ok := typeutil.Callee(p.TypesInfo, call).(*types.Func)
	if !ok {
		return "", nil
	}
	var fact takesFact
	if !p.ImportObjectFact(fn.Origin(), &fact) {
		return "", nil
	}
	i := slices.IndexFunc(call.Args, func(arg ast.Expr) bool {
		t := p.TypesInfo.TypeOf(arg)
		return t != nil && p.ofLockpkg(t, "Tx")
	})
	if i < 0 {
		return "", nil
	}
	return types.ExprString(call.Args[i]), fact.Classes
}
