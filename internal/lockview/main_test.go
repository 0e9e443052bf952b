package lockview

import (
	"testing"

	"github.com/bursarhq/bursar/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
