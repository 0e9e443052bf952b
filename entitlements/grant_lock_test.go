package entitlements_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who looks at locks reads of a grant whose it is and what it gives.
func TestTheLockOfAGrantHasAName(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.org("acme", "club")
	grant := h.issue("acme", "gold", nil)
	require.Equal(t, "acme gold", h.one(`SELECT organization || ' ' || label FROM core.lock_subjects(ARRAY['grant-lineage-head'], ARRAY[$1])`, grant.String()))
}
