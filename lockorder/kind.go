package lockorder

// Kind is what a transaction is for. It is fixed when the transaction opens and never changes: going from the
// shared rendezvous to the exclusive one would wait for oneself.
type Kind int

const (
	// Plain takes no rendezvous: it neither changes rules nor materializes.
	Plain Kind = iota + 1
	// Materializing takes the rendezvous shared: it may change positions and entitlements of pools.
	Materializing
	// RuleChange takes the rendezvous exclusive: it may change rules, ladders and mappings, and materialize under
	// them. While it holds the rendezvous it waits for nothing: a busy row ends it.
	RuleChange
)

func (k Kind) String() string {
	switch k {
	case Plain:
		return "plain"
	case Materializing:
		return "materializing"
	case RuleChange:
		return "rule-change"
	}
	return "unknown kind"
}

// rendezvous is the value of the setting lockorder.rendezvous while the kind's rendezvous is held.
func (k Kind) rendezvous() string {
	switch k {
	case Materializing:
		return "shared"
	case RuleChange:
		return "exclusive"
	}
	return ""
}
