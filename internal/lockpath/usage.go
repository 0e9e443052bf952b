package lockpath

import "github.com/bursarhq/bursar/lockorder"

// UsageSpend is entitlements.Spend.
var UsageSpend = path(Path{
	Name: "usage-spend", Area: Usage, Kind: lockorder.Plain,
	Rows: []Step{{
		Class: lockorder.Usage,
		Of:    "of the counter in the present window, which is made where there is none; for ten minutes after a window's end, of the window before too",
		When:  "where the spend was not granted before",
	}},
	Does: "Takes of what is left of an allowance, once for each id of the caller's.",
	By:   []string{"entitlements.Spend", "bursar usage spend"},
})

// UsageRelease is entitlements.Release.
var UsageRelease = path(Path{
	Name: "usage-release", Area: Usage, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.Usage, Of: "of the counter in the window that the spend was taken from"}},
	Does: "Gives back a spend, or a part of it.",
	By:   []string{"entitlements.Release", "bursar usage release"},
})

// UsageRaise is entitlements.RaiseTo.
var UsageRaise = path(Path{
	Name: "usage-raise", Area: Usage, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.Usage, Of: "of the counter in the present window, which is made where there is none"}},
	Does: "Makes a counter what was measured at least.",
	By:   []string{"entitlements.RaiseTo", "bursar usage raise"},
})

// UsageBound is entitlements.Bound.
var UsageBound = path(Path{
	Name: "usage-bound", Area: Usage, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.Usage, Of: "of the counter in the present window, which is made where there is none"}},
	Does: "Makes a counter what was counted at most.",
	By:   []string{"entitlements.Bound", "bursar usage bound"},
})
