package lockorder

// Defaults returns the bounds that the zero Options stand for: what a transaction keeps to unless its process chose
// otherwise.
func Defaults() Options { return Options{}.withDefaults() }
