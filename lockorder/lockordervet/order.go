package lockordervet

import (
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

// checkOrder holds every function to the rule order.
func (p *pass) checkOrder() {
	opened := map[*ast.FuncLit]ast.Expr{} // functions given to Run, with the Spec
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if fn := p.method(n); fn != nil && nameOf(fn) == "DB.Run" && len(n.Args) == 3 {
					if lit, ok := ast.Unparen(n.Args[2]).(*ast.FuncLit); ok {
						opened[lit] = n.Args[1]
					}
				}
			case *ast.FuncDecl:
				if n.Body != nil {
					p.checkFunction(n.Body, state{})
				}
			case *ast.FuncLit:
				p.checkFunction(n.Body, p.declared(n, opened[n]))
			}
			return true
		})
	}
}

// method returns the function of lockorder that a call calls, or nil.
func (p *pass) method(call *ast.CallExpr) *types.Func {
	id := lastIdent(call.Fun)
	if id == nil {
		return nil
	}
	fn, ok := p.TypesInfo.Uses[id].(*types.Func)
	if !ok || pathOf(fn) != p.lockpkg {
		return nil
	}
	return fn
}

// declared is the state at the beginning of a function that is given to Run: the keys that stand in its Spec are held.
func (p *pass) declared(lit *ast.FuncLit, spec ast.Expr) state {
	s := state{}
	if spec == nil {
		return s
	}
	tx := ""
	for _, field := range lit.Type.Params.List {
		if p.ofLockpkg(p.TypesInfo.TypeOf(field.Type), "Tx") && len(field.Names) == 1 {
			tx = field.Names[0].Name
		}
	}
	if tx == "" || tx == "_" {
		return s
	}
	ast.Inspect(spec, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		if _, ok := e.(*ast.FuncLit); ok {
			return false
		}
		if t := p.TypesInfo.TypeOf(e); t == nil || !p.isLocks(t) {
			return true
		}
		p.hold(s, tx, e)
		return false
	})
	return s
}

// checkFunction follows the paths through one function.
func (p *pass) checkFunction(body *ast.BlockStmt, begin state) {
	if !p.asksForLocks(body) {
		return
	}
	graph := cfg.New(body, p.mayReturn)
	in := make([]state, len(graph.Blocks))
	in[0] = begin
	work := []*cfg.Block{graph.Blocks[0]}
	for len(work) > 0 {
		b := work[0]
		work = work[1:]
		out := p.step(b, in[b.Index].clone(), false)
		for _, next := range b.Succs {
			switch {
			case in[next.Index] == nil:
				in[next.Index] = out.clone()
			case !in[next.Index].join(out):
				continue
			}
			work = append(work, next)
		}
	}
	for _, b := range graph.Blocks {
		if in[b.Index] != nil {
			p.step(b, in[b.Index].clone(), true)
		}
	}
}

// asksForLocks tells whether a function does anything that the rule is about.
func (p *pass) asksForLocks(body *ast.BlockStmt) bool {
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			_, asks := p.askedFor(n)
			_, taken := p.takenBy(n)
			found = found || asks || taken != nil
		}
		return !found
	})
	return found
}

// mayReturn tells whether a call comes back.
func (p *pass) mayReturn(call *ast.CallExpr) bool {
	id := lastIdent(call.Fun)
	if id == nil {
		return true
	}
	switch obj := p.TypesInfo.Uses[id].(type) {
	case *types.Builtin:
		return obj.Name() != "panic"
	case *types.Func:
		switch pathOf(obj) + "." + nameOf(obj) {
		case "os.Exit", "runtime.Goexit", "log.Fatal", "log.Fatalf", "log.Fatalln", "log.Panic", "log.Panicf", "log.Panicln",
			"testing.common.Fatal", "testing.common.Fatalf", "testing.common.FailNow", "testing.TB.Fatal", "testing.TB.Fatalf":
			return false
		}
	}
	return true
}

// step goes through one block, and reports what is out of order there if it is asked to.
func (p *pass) step(b *cfg.Block, s state, report bool) state {
	if loop, ok := b.Stmt.(*ast.RangeStmt); ok && b.Kind == cfg.KindRangeBody {
		p.forget(s, loop.Key, loop.Value)
	}
	for _, n := range b.Nodes {
		p.stepNode(n, s, report)
	}
	return s
}

func (p *pass) stepNode(n ast.Node, s state, report bool) {
	var stack []ast.Node
	ast.Inspect(n, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncLit, *ast.DeferStmt, *ast.GoStmt:
			return false
		case nil: // after everything within: arguments come before their call
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			switch top := top.(type) {
			case *ast.CallExpr:
				p.stepCall(top, s, report)
			case *ast.AssignStmt:
				p.forget(s, top.Lhs...)
			case *ast.IncDecStmt:
				p.forget(s, top.X)
			case *ast.ValueSpec:
				for _, name := range top.Names {
					p.forget(s, name)
				}
			case *ast.UnaryExpr:
				if top.Op == token.AND { // it may be changed from elsewhere
					p.forget(s, top.X)
				}
			}
			return true
		}
		stack = append(stack, n)
		return true
	})
}

// stepCall is what one call does to the locks of a transaction.
func (p *pass) stepCall(call *ast.CallExpr, s state, report bool) {
	if tx, classes := p.takenBy(call); classes != nil {
		p.stepHelper(call, s, tx, classes, report)
		return
	}
	fn := p.method(call)
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || fn == nil || receiver(fn) != "Tx" {
		return
	}
	tx := types.ExprString(sel.X)
	locks, asks := p.askedFor(call)
	switch {
	case asks && report:
		p.checkLock(s[tx], sel.Sel, locks)
	case fn.Name() == "Require":
		locks = call.Args
	case fn.Name() == "Now":
		h := s[tx]
		if !h.now.IsValid() {
			h.now = call.Pos()
		}
		s[tx] = h
	}
	for _, lock := range locks {
		p.hold(s, tx, lock)
	}
}

// stepHelper is what a call does that hands the transaction to a function which takes locks.
func (p *pass) stepHelper(call *ast.CallExpr, s state, tx string, classes []class, report bool) {
	h := s[tx]
	for _, c := range classes {
		if report && h.any && c.Rank < h.top.Rank && !h.taken[c] {
			p.find(Order, call.Pos(), "%s asks for %s (rank %d) where %s (rank %d) may be held since line %d: call it first, or take the %[2]s before",
				display(typeutil.Callee(p.TypesInfo, call)), c.Name, c.Rank, h.top.Name, h.top.Rank, p.Fset.Position(h.from).Line)
			break
		}
	}
	for _, c := range classes {
		h.take(c)
		if !h.any || c.Rank > h.top.Rank {
			h.top, h.from, h.any = c, call.Pos(), true
		}
	}
	s[tx] = h
}

// checkLock finds a lock that is asked for out of order.
func (p *pass) checkLock(h held, at *ast.Ident, args []ast.Expr) {
	for _, arg := range args {
		if _, ok := h.sure[types.ExprString(arg)]; ok {
			continue
		}
		if h.now.IsValid() {
			p.find(Order, at.Pos(), "%s asks for a new lock after the transaction's time was read in line %d: read the time under all locks",
				at.Name, p.Fset.Position(h.now).Line)
			return
		}
		if classes := p.classesOf(arg); h.any && len(classes) > 0 && classes[0].Rank < h.top.Rank {
			p.find(Order, at.Pos(), "%s asks for %s (rank %d) where %s (rank %d) may be held since line %d: ask for %s first, or for both at once",
				at.Name, classes[0].Name, classes[0].Rank, h.top.Name, h.top.Rank, p.Fset.Position(h.from).Line, classes[0].Name)
			return
		}
	}
}

// hold notes that the locks of an expression are held from here on.
func (p *pass) hold(s state, tx string, e ast.Expr) {
	h := s[tx]
	if classes := p.classesOf(e); len(classes) > 0 {
		for _, c := range classes {
			h.take(c)
		}
		if top := classes[len(classes)-1]; !h.any || top.Rank > h.top.Rank {
			h.top, h.from, h.any = top, e.Pos(), true
		}
	}
	if objs, ok := p.variables(e); ok {
		if h.sure == nil {
			h.sure = map[string][]types.Object{}
		}
		h.sure[types.ExprString(e)] = objs
	}
	s[tx] = h
}

// variables returns the variables that an expression is made of; not ok where it may stand for something else each time.
func (p *pass) variables(e ast.Expr) (objs []types.Object, ok bool) {
	ok = true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fn, isFn := p.TypesInfo.Uses[lastIdentOr(n.Fun)].(*types.Func)
			made := isFn && p.ImportObjectFact(fn.Origin(), new(locksFact))
			if !made && !p.TypesInfo.Types[n.Fun].IsType() {
				ok = false
			}
		case *ast.Ident:
			if v, isVar := p.TypesInfo.ObjectOf(n).(*types.Var); isVar && !v.IsField() {
				objs = append(objs, v)
			}
		case *ast.FuncLit:
			ok = false
		}
		return ok
	})
	return objs, ok
}

func lastIdentOr(e ast.Expr) *ast.Ident {
	if id := lastIdent(e); id != nil {
		return id
	}
	return &ast.Ident{}
}

// forget drops what was sure of variables that are set anew.
func (p *pass) forget(s state, set ...ast.Expr) {
	for _, e := range set {
		if e == nil {
			continue
		}
		var root *ast.Ident
		for root == nil {
			switch x := ast.Unparen(e).(type) {
			case *ast.Ident:
				root = x
			case *ast.SelectorExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			default:
				root = &ast.Ident{}
			}
		}
		obj := p.TypesInfo.ObjectOf(root)
		for _, h := range s {
			for text, objs := range h.sure {
				for _, o := range objs {
					if o == obj {
						delete(h.sure, text)
					}
				}
			}
		}
	}
}
