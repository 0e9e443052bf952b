package lockordervet

import (
	"go/types"
	"path"
	"slices"
	"strings"
)

// known lists functions and methods of packages: "Dial*" is a function or functions, "Client.Do" a method of a type or an
// interface. Patterns are those of path.Match; a package that ends in "/..." stands for what is below it.
type known []struct {
	pkg   string
	names []string
}

// network is what reaches the network, or starts a program, which may.
var network = known{
	{"net", []string{"Dial*", "Listen*", "Lookup*", "Resolve*Addr", "FileConn", "FileListener", "FilePacketConn",
		"Dialer.*", "Resolver.*", "ListenConfig.*", "*Conn.Read*", "*Conn.Write*", "*Listener.Accept*", "Buffers.WriteTo"}},
	{"net/http", []string{"Get", "Head", "Post", "PostForm", "ListenAndServe*", "Serve", "ServeTLS", "Error", "Redirect", "NotFound", "ServeFile*", "ServeContent",
		"Client.Do", "Client.Get", "Client.Head", "Client.Post", "Client.PostForm", "Transport.RoundTrip", "RoundTripper.RoundTrip",
		"Server.ListenAndServe*", "Server.Serve*", "Server.Shutdown", "ResponseWriter.Write*", "Flusher.*", "Hijacker.*", "Pusher.*", "ResponseController.*"}},
	{"net/http/httputil", []string{"ReverseProxy.*", "ClientConn.*", "ServerConn.*"}},
	{"net/rpc", []string{"Dial*", "Accept", "Client.Call", "Client.Go", "Server.*"}},
	{"net/rpc/jsonrpc", []string{"Dial"}},
	{"net/smtp", []string{"Dial", "SendMail", "Client.*"}},
	{"crypto/tls", []string{"Dial*", "Listen", "Dialer.*", "Conn.Read", "Conn.Write", "Conn.Handshake*"}},
	{"log/syslog", []string{"*"}},
	{"os/exec", []string{"Cmd.Run", "Cmd.Start", "Cmd.Output", "Cmd.CombinedOutput", "Cmd.Wait"}},
	{"os", []string{"StartProcess"}},
	{"syscall", []string{"Exec", "ForkExec", "StartProcess", "Connect", "Sendto", "Sendmsg*"}},
	{"github.com/stripe/stripe-go/*", []string{"Backend.Call*", "Backend.RawRequest", "StreamingBackend.*", "BackendImplementation.Call*", "BackendImplementation.Do*",
		"BackendImplementation.RawRequest", "UsageBackend.*", "*Iter.Next", "v[0-9]*Service.*"}},
	{"github.com/stripe/stripe-go/*/...", []string{"*"}},
	{"go.temporal.io/sdk/client", []string{"Dial*", "New*Client*", "*Client.*", "WorkflowRun.*", "*Handle.*"}},
	{"go.temporal.io/sdk/internal", []string{"*Client.*", "*WorkflowRun*.*", "*Handle.*", "*Iterator.Next"}},
	{"google.golang.org/grpc", []string{"Dial*", "NewClient", "Invoke", "ClientConn.*", "ClientConnInterface.*", "*Stream.*", "Server.Serve*"}},
}

// offline is what the patterns of network catch and never leaves the process.
var offline = known{
	{"net", []string{"Dialer.MultipathTCP", "Dialer.SetMultipathTCP", "ListenConfig.MultipathTCP", "ListenConfig.SetMultipathTCP", "Conn.SetWriteDeadline", "Conn.SetReadDeadline"}},
	{"github.com/stripe/stripe-go/*/webhook", []string{"*"}},
	{"github.com/stripe/stripe-go/*/form", []string{"*"}},
	{"go.temporal.io/sdk/client", []string{"WorkflowRun.GetID", "WorkflowRun.GetRunID", "ScheduleHandle.GetID"}},
	{"google.golang.org/grpc", []string{"ClientConn.Target", "ClientConn.GetState"}},
}

// connections is what opens a connection to a database or uses one; inside a transaction function it would be a second one.
var connections = known{
	{"database/sql", []string{"Open", "OpenDB", "DB.Begin*", "DB.Conn", "DB.Exec*", "DB.Ping*", "DB.Prepare*", "DB.Query*",
		"Conn.Begin*", "Conn.Exec*", "Conn.Ping*", "Conn.Prepare*", "Conn.Query*", "Stmt.Exec*", "Stmt.Query*"}},
	{"github.com/jackc/pgx/*", []string{"Connect*", "BeginFunc", "BeginTxFunc", "Conn.Begin*", "Conn.Exec", "Conn.Ping", "Conn.Prepare", "Conn.Query*", "Conn.SendBatch", "Conn.CopyFrom", "Conn.LoadType*", "Conn.WaitForNotification"}},
	{"github.com/jackc/pgx/*/pgxpool", []string{"New*", "Connect*", "Pool.Acquire*", "Pool.Begin*", "Pool.CopyFrom", "Pool.Exec", "Pool.Ping", "Pool.Query*", "Pool.SendBatch",
		"Conn.Begin*", "Conn.CopyFrom", "Conn.Exec", "Conn.Ping", "Conn.Query*", "Conn.SendBatch"}},
	{"github.com/jackc/pgx/*/pgconn", []string{"Connect*", "PgConn.Exec*", "PgConn.Prepare", "PgConn.Ping", "PgConn.CopyTo", "PgConn.CopyFrom", "PgConn.SendBatch", "PgConn.StartPipeline", "PgConn.WaitForNotification"}},
	{"github.com/jackc/pgx/*/stdlib", []string{"Open*", "GetConnector", "GetPoolConnector"}},
}

// ofLockorder is what of lockorder itself needs a connection of its own.
var ofLockorder = []string{"Open", "DB.Run", "DB.Reader", "DB.Ping"}

// connectionTypes are what a second connection travels in when it is handed over as something to run statements on.
var connectionTypes = known{
	{"database/sql", []string{"DB", "Conn"}},
	{"github.com/jackc/pgx/*", []string{"Conn"}},
	{"github.com/jackc/pgx/*/pgxpool", []string{"Pool", "Conn"}},
	{"github.com/jackc/pgx/*/pgconn", []string{"PgConn"}},
}

// drivers are followed no further: what of them needs a connection stands above, and the rest works on a connection that the
// transaction has.
var drivers = []string{"database/sql", "github.com/jackc/pgx"}

// has tells whether the list names an object of a package, given as "Func" or "Type.Method".
func (k known) has(pkg, name string) bool {
	for _, entry := range k {
		if matchPackage(entry.pkg, pkg) && matchName(entry.names, name) {
			return true
		}
	}
	return false
}

func matchName(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "*" {
			return true
		}
		if strings.Count(pattern, ".") != strings.Count(name, ".") {
			return false // "Dial*" is no method of a type Dialer
		}
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// matchPackage matches a package path against a pattern. A "*" in it is the module's major version, which v0 and v1 lack.
func matchPackage(pattern, pkg string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		if matchPackage(below, pkg) {
			return false
		}
		for p := path.Dir(pkg); p != "."; p = path.Dir(p) {
			if matchPackage(below, p) {
				return true
			}
		}
		return false
	}
	if ok, _ := path.Match(pattern, pkg); !ok {
		return strings.Contains(pattern, "/*") && strings.Replace(pattern, "/*", "", 1) == pkg
	}
	return !strings.Contains(pattern, "*") || isMajor(pkg, strings.Count(pattern[:strings.Index(pattern, "*")], "/"))
}

// isMajor tells whether the nth element of a path is a major version, such as v5.
func isMajor(pkg string, n int) bool {
	parts := strings.Split(pkg, "/")
	if n >= len(parts) {
		return false
	}
	digits, ok := strings.CutPrefix(parts[n], "v")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// under tells whether a package is the one of a prefix, or below it.
func under(pkg, prefix string) bool { return pkg == prefix || strings.HasPrefix(pkg, prefix+"/") }

// pathOf returns the path of an object's package without what a build adds to it, or "".
func pathOf(obj types.Object) string {
	if obj == nil || obj.Pkg() == nil {
		return ""
	}
	return obj.Pkg().Path()
}

// nameOf returns the name of an object in its package: "Func", "Type.Method", or "Type" of a type.
func nameOf(obj types.Object) string {
	if fn, ok := obj.(*types.Func); ok {
		if named := receiver(fn); named != "" {
			return named + "." + fn.Name()
		}
	}
	return obj.Name()
}

// receiver returns the name of the type or interface that a method belongs to, or "".
func receiver(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return ""
	}
	t := types.Unalias(recv.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	switch t := t.(type) {
	case *types.Named:
		return t.Obj().Name()
	case *types.Interface:
		return "interface"
	}
	return ""
}

// display names an object for a finding: "pgxpool.Pool.Begin".
func display(obj types.Object) string {
	if obj.Pkg() == nil {
		return nameOf(obj)
	}
	return obj.Pkg().Name() + "." + nameOf(obj)
}
