package standin

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
)

const idAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// ids makes ids that look like Stripe's.
type ids struct{ rnd *rand.Rand }

// newIDs returns a generator: the same ids in the same order for the same seed, unpredictable ones for seed 0.
func newIDs(seed int64) *ids {
	if seed != 0 {
		return &ids{rand.New(rand.NewPCG(uint64(seed), 0x42757273))}
	}
	var b [16]byte
	crand.Read(b[:]) // never fails: the runtime ends the program instead
	return &ids{rand.New(rand.NewPCG(binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])))}
}

// next returns prefix followed by n letters and digits.
func (g *ids) next(prefix string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = idAlphabet[g.rnd.IntN(len(idAlphabet))]
	}
	return prefix + string(b)
}

func (g *ids) customer() string     { return g.next("cus_", 14) }
func (g *ids) product() string      { return g.next("prod_", 14) }
func (g *ids) price() string        { return g.next("price_", 24) }
func (g *ids) subscription() string { return g.next("sub_", 24) }
func (g *ids) item() string         { return g.next("si_", 14) }
func (g *ids) event() string        { return g.next("evt_", 24) }
func (g *ids) checkout() string     { return g.next("cs_test_", 58) }
func (g *ids) request() string      { return g.next("req_", 14) }
