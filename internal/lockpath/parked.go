package lockpath

import "github.com/bursarhq/bursar/lockorder"

// ParkedRetryRequest is activities.Operator.RequestRetry.
var ParkedRetryRequest = path(Path{
	Name: "parked-retry-request", Area: Parked, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.ParkedWork, Of: "of each object named, a page of them in one transaction", When: "where it is still parked"}},
	Does: "Notes that parked objects are to be tried again.",
	By:   []string{"bursar parked retry"},
})

// ParkedRetry is activities.Parked.RetryParked.
var ParkedRetry = path(Path{
	Name: "parked-retry", Area: Parked, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.ParkedWork, Of: "of each object of a page that was handed on", When: "where it is still parked"}},
	Does: "Clears the requests of the parked objects whose workflows were signalled.",
	By:   []string{"activity RetryParked"},
})
