package locktest

import (
	"testing"

	"github.com/bursarhq/bursar/internal/pgtest"
)

// Main runs the tests of a package as pgtest.Main does, and then checks the order graph that they left. Call it from
// TestMain.
func Main(m *testing.M, after ...func() error) {
	pgtest.Main(m, append(after, EndProcess)...)
}
