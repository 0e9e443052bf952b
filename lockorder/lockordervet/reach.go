package lockordervet

import (
	"go/types"
	"slices"
	"strings"
)

// reach is what a function can get to: for the network, and for another connection of the database, the names on the way,
// the last of which is there. None means that it cannot.
type reach struct {
	Net  []string
	Conn []string
}

// reachFact is the reach of a function, a method of an interface, or a variable or field of function type.
type reachFact reach

func (*reachFact) AFact() {}

func (f *reachFact) String() string {
	return "net:" + strings.Join(f.Net, "→") + " conn:" + strings.Join(f.Conn, "→")
}

// longest is how many names of a way are kept, first and last ones.
const longest = 6

func through(name string, way []string) []string {
	if way == nil {
		return nil
	}
	if len(way) > 0 && way[0] == name {
		return way
	}
	all := append([]string{name}, way...)
	if len(all) > longest {
		all = slices.Concat(all[:longest-2], []string{"…"}, all[len(all)-1:])
	}
	return all
}

// classify tells what is known of an object by its name. followed is false where nothing more is to be found out about it.
func (p *pass) classify(obj types.Object) (r reach, followed bool) {
	path, name := pathOf(obj), nameOf(obj)
	switch {
	case path == p.lockpkg:
		if matchName(ofLockorder, name) {
			return reach{Conn: []string{display(obj)}}, false
		}
		return reach{}, false
	case listed(p.offline, path, name) || offline.has(path, name):
		return reach{}, false
	case listed(p.network, path, name) || network.has(path, name) || callsGRPC(obj):
		return reach{Net: []string{display(obj)}}, false
	case connections.has(path, name):
		return reach{Conn: []string{display(obj)}}, false
	case slices.ContainsFunc(drivers, func(d string) bool { return under(path, d) }):
		return reach{}, false
	}
	return reach{}, true
}

// listed tells whether a flag names an object, its type or its package.
func listed(l list, path, name string) bool {
	typ, _, _ := strings.Cut(name, ".")
	return slices.Contains(l, path) || slices.Contains(l, path+"."+name) || slices.Contains(l, path+"."+typ)
}

// callsGRPC tells whether a function takes options of a gRPC call, as every generated client's methods do.
func callsGRPC(obj types.Object) bool {
	fn, ok := obj.(*types.Func)
	if !ok || !fn.Signature().Variadic() {
		return false
	}
	last := fn.Signature().Params().At(fn.Signature().Params().Len() - 1)
	slice, ok := last.Type().(*types.Slice)
	if !ok {
		return false
	}
	named, ok := types.Unalias(slice.Elem()).(*types.Named)
	return ok && named.Obj().Name() == "CallOption" && pathOf(named.Obj()) == "google.golang.org/grpc"
}

// reachOf returns what is known so far of what an object reaches.
func (p *pass) reachOf(obj types.Object) reach {
	r, followed := p.classify(obj)
	if !followed || p.inTransaction(obj.Type()) { // a transaction function is checked where it stands
		return r
	}
	if n := p.graph[obj]; n != nil {
		return n.reach
	}
	var fact reachFact
	if obj.Pkg() != nil && p.ImportObjectFact(obj, &fact) {
		return reach(fact)
	}
	if fn, ok := obj.(*types.Func); ok {
		for _, callee := range p.implementations(fn) {
			found, followed := p.classify(callee)
			if followed && !types.IsInterface(callee.Signature().Recv().Type()) {
				found = p.reachOf(callee)
			}
			name := display(callee)
			if r.Net == nil {
				r.Net = through(name, found.Net)
			}
			if r.Conn == nil {
				r.Conn = through(name, found.Conn)
			}
		}
	}
	return r
}

// reachOfUse is reachOf for what a function mentions, with the object itself as the first name of the way.
func (p *pass) reachOfUse(u use) reach {
	if u.conn != "" {
		return reach{Conn: []string{u.conn}}
	}
	r := p.reachOf(u.target)
	name := display(u.target)
	return reach{through(name, r.Net), through(name, r.Conn)}
}

// followGraph spreads what is reached over the functions of the package, until nothing more is found.
func (p *pass) followGraph() {
	for changed := true; changed; {
		changed = false
		for _, n := range p.nodes {
			for _, u := range n.uses {
				if n.reach.Net != nil && n.reach.Conn != nil {
					break
				}
				r := p.reachOfUse(u)
				if n.reach.Net == nil && r.Net != nil && p.allowed(Network, u.pos) == nil {
					n.reach.Net, changed = r.Net, true
				}
				if n.reach.Conn == nil && r.Conn != nil && p.allowed(Nested, u.pos) == nil {
					n.reach.Conn, changed = r.Conn, true
				}
			}
		}
	}
	for _, n := range p.nodes {
		for _, u := range n.uses {
			r := p.reachOfUse(u)
			if r.Net != nil {
				p.allow(Network, u.pos)
			}
			if r.Conn != nil {
				p.allow(Nested, u.pos)
			}
		}
	}
}

// exportReach tells the packages that import this one what its functions reach, and the methods of its interfaces, as far as
// is known here.
func (p *pass) exportReach() {
	export := func(obj types.Object, r reach) {
		if obj.Pkg() == p.Pkg && (r.Net != nil || r.Conn != nil) {
			p.ExportObjectFact(obj, (*reachFact)(&r))
		}
	}
	for _, n := range p.nodes {
		export(n.obj, n.reach)
	}
	scope := p.Pkg.Scope()
	for _, name := range scope.Names() {
		if iface, ok := scope.Lookup(name).Type().Underlying().(*types.Interface); ok {
			for method := range iface.ExplicitMethods() {
				export(method, p.reachOf(method))
			}
		}
	}
}

// checkReach holds the transaction functions to the rules network and nested.
func (p *pass) checkReach() {
	for _, root := range p.roots {
		for _, u := range root.uses {
			r := p.reachOfUse(u)
			if r.Net != nil {
				p.find(Network, u.pos, "%s can reach the network inside a transaction function%s: call it before the transaction opens and hand in what it answers, or after it has ended",
					r.Net[0], way(r.Net))
			}
			if r.Conn != nil {
				p.find(Nested, u.pos, "%s can use a second connection inside a transaction function%s: take the *%s.Tx that there is",
					r.Conn[0], way(r.Conn), p.lockName())
			}
		}
	}
}

func (p *pass) lockName() string { return p.lockpkg[strings.LastIndex(p.lockpkg, "/")+1:] }

func way(names []string) string {
	if len(names) < 2 {
		return ""
	}
	return " (" + strings.Join(names, " → ") + ")"
}

// implementations returns the methods that a call of a method of an interface may come to: those of types of this module that
// the package can see. An interface of another module is not followed, since half of the world implements io.Writer.
func (p *pass) implementations(fn *types.Func) []*types.Func {
	recv := fn.Signature().Recv()
	if recv == nil || !types.IsInterface(recv.Type()) || !p.sameModule(fn.Pkg()) {
		return nil
	}
	if found, ok := p.callees[fn]; ok {
		return found
	}
	iface := recv.Type().Underlying().(*types.Interface)
	var found []*types.Func
	for _, named := range p.namedTypes() {
		ptr := types.NewPointer(named)
		if !types.Implements(ptr, iface) {
			continue
		}
		obj, _, _ := types.LookupFieldOrMethod(ptr, true, fn.Pkg(), fn.Name())
		if method, ok := obj.(*types.Func); ok && method.Origin() != fn {
			found = append(found, method.Origin())
		}
	}
	p.callees[fn] = found
	return found
}

// namedTypes returns the types of this module that the package can see, other than interfaces.
func (p *pass) namedTypes() []*types.Named {
	if p.named != nil {
		return p.named
	}
	add := func(obj types.Object) {
		name, ok := obj.(*types.TypeName)
		if !ok || name.IsAlias() {
			return
		}
		if named, ok := name.Type().(*types.Named); ok && !types.IsInterface(named) && named.TypeParams().Len() == 0 {
			p.named = append(p.named, named)
		}
	}
	for _, obj := range p.TypesInfo.Defs {
		if obj != nil {
			add(obj)
		}
	}
	seen := map[*types.Package]bool{p.Pkg: true}
	var visit func(pkg *types.Package)
	visit = func(pkg *types.Package) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		if p.sameModule(pkg) && pkg.Path() != p.lockpkg {
			for _, name := range pkg.Scope().Names() {
				add(pkg.Scope().Lookup(name))
			}
		}
		for _, imported := range pkg.Imports() {
			visit(imported)
		}
	}
	for _, imported := range p.Pkg.Imports() {
		visit(imported)
	}
	slices.SortFunc(p.named, func(a, b *types.Named) int { return strings.Compare(a.String(), b.String()) })
	return p.named
}
