package entitlements

import (
	"maps"
	"slices"
)

// Effect is what changes in one pool.
type Effect struct {
	Organization string        `json:"organization"`
	Pool         string        `json:"pool"`
	Changes      []ValueChange `json:"changes"`
}

// ValueChange is one entitlement before and after.
type ValueChange struct {
	Key  string `json:"key"`
	From Value  `json:"from"`
	To   Value  `json:"to"`
}

// Effects compares the states of the same pools, in the same order, before and after; pools that stay as they are are left
// out.
func Effects(before, after []PoolState) []Effect {
	effects := []Effect{}
	for i, was := range before {
		is := after[i]
		e := Effect{Organization: was.Organization, Pool: was.PoolName}
		keys := maps.Clone(was.Values)
		maps.Copy(keys, is.Values)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if was.Values[key] != is.Values[key] {
				e.Changes = append(e.Changes, ValueChange{key, was.Values[key], is.Values[key]})
			}
		}
		if len(e.Changes) > 0 {
			effects = append(effects, e)
		}
	}
	return effects
}
