package lockview

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/lockorder"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	key := lockorder.New(lockorder.Materialization).Key()
	require.Negative(t, key)
	for _, text := range []string{"-9104575358558129625", "2175143155/308163111", "2175143155 / 308163111"} {
		got, err := ParseKey(text)
		require.NoError(t, err)
		require.Equal(t, key, got)
	}
	for _, text := range []string{"", "x", "1/", "/1", "1/2/3", "-1/2", "4294967296/0", "9223372036854775808", "0x1"} {
		_, err := ParseKey(text)
		require.Error(t, err, text)
	}
}

func TestHalves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Int64().Draw(t, "key")
		high, low := Halves(key)
		if Join(high, low) != key {
			t.Fatalf("%d comes back as %d", key, Join(high, low))
		}
		got, err := ParseKey(fmt.Sprintf("%d/%d", high, low))
		if err != nil || got != key {
			t.Fatalf("%d/%d is read as %d (%v)", high, low, got, err)
		}
	})
}
