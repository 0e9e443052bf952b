package main

import "github.com/bursarhq/bursar/lockorder"

// answer is an identity with the key that package lockorder derives from it.
type answer struct {
	Text            string
	Key             int64
	ClassID, Object uint32 // the two halves that pg_locks shows
}

// answers are identities of every family that has a form of its own, with the awkward ones among them.
func answers() []answer {
	var out []answer
	for _, l := range []lockorder.Lock{
		lockorder.New(lockorder.Materialization),
		lockorder.New(lockorder.Subscription, "sub_1PqRsT2eZvKYlo2C"),
		lockorder.New(lockorder.Invoice, "in_1PqRsT2eZvKYlo2C"),
		lockorder.New(lockorder.Product, "9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10"),
		lockorder.New(lockorder.Workspace, "17963da0-ab4a-4574-8eca-202bc22ceb7d"),
		lockorder.New(lockorder.Workspace, "b1d30740-dd19-43ff-b650-978f27bfc618"),
		lockorder.New(lockorder.Lifecycle, "17963da0-ab4a-4574-8eca-202bc22ceb7d"),
		lockorder.New(lockorder.DesiredState, "c1", "organization", "a:b"),
		lockorder.New(lockorder.DesiredState, "c1", "organization:a", "b"),
		lockorder.New(lockorder.Domains),
		lockorder.New(lockorder.Migration, "bursar"),
	} {
		key := uint64(l.Key())
		out = append(out, answer{l.Text(), l.Key(), uint32(key >> 32), uint32(key)})
	}
	return out
}
