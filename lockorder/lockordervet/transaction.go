package lockordervet

import (
	"go/ast"
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// executors are the methods that are given a statement as a text.
var executors = []string{"Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext", "Queue", "Prepare", "PrepareContext", "ExecParams", "SendQuery"}

// beginning is a statement that opens a transaction, or a part of one: at the beginning of the text or after another statement.
var beginning = regexp.MustCompile(`(?i)(?:^|;)(?:\s|--[^\n]*\n|/\*(?s:.*?)\*/)*(BEGIN|START\s+TRANSACTION|SAVEPOINT|PREPARE\s+TRANSACTION)\b`)

// checkTransactions finds transactions that are opened outside lockorder.
func (p *pass) checkTransactions() {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if fn, ok := p.TypesInfo.Uses[n].(*types.Func); ok && opens(fn) {
					p.find(Transaction, n.Pos(), "%s opens a transaction outside %s: give its work to (*%[2]s.DB).Run, which takes the locks in order and bounds each wait",
						display(fn), p.lockName())
				}
			case *ast.CallExpr:
				p.checkStatement(n)
			}
			return true
		})
	}
}

// opens tells whether a function opens a transaction of pgx or database/sql: one of theirs, or any that is called Begin and
// answers such a transaction.
func opens(fn *types.Func) bool {
	if !strings.HasPrefix(fn.Name(), "Begin") {
		return false
	}
	if isDriver(pathOf(fn)) {
		return true
	}
	for v := range fn.Signature().Results().Variables() {
		t := types.Unalias(v.Type())
		if ptr, ok := t.(*types.Pointer); ok {
			t = types.Unalias(ptr.Elem())
		}
		if named, ok := t.(*types.Named); ok && named.Obj().Name() == "Tx" && isDriver(pathOf(named.Obj())) {
			return true
		}
	}
	return false
}

func isDriver(path string) bool {
	return slices.ContainsFunc(drivers, func(d string) bool { return under(path, d) })
}

// checkStatement finds a statement that begins a transaction, among the texts that a call is given to run.
func (p *pass) checkStatement(call *ast.CallExpr) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || !slices.Contains(executors, sel.Sel.Name) {
		return
	}
	for _, arg := range call.Args {
		text, ok := p.constantText(arg)
		if !ok {
			continue
		}
		if m := beginning.FindStringSubmatch(text); m != nil {
			p.find(Transaction, arg.Pos(), "the text begins with %s or comes to it, outside %s: give the work to (*%[2]s.DB).Run, which takes the locks in order and bounds each wait",
				strings.ToUpper(strings.Join(strings.Fields(m[1]), " ")), p.lockName())
			return
		}
	}
}

// constantText returns the text that an expression always has.
func (p *pass) constantText(e ast.Expr) (string, bool) {
	value := p.TypesInfo.Types[e].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}
