package contract

import (
	"time"

	"github.com/google/uuid"
)

// Activities that act on grants; each is an act.
const (
	ActGrantIssue  = "GrantIssue"
	ActGrantExtend = "GrantExtend"
	ActGrantManage = "GrantManage"
	ActGrantRevoke = "GrantRevoke"
	ActGrantResume = "GrantResume"
)

// GrantIssue is the input of ActGrantIssue.
type GrantIssue struct {
	// ID is the id of the grant that is made.
	ID uuid.UUID `json:"id"`
	// Organization is a slug or id, empty for a grant that names none yet.
	Organization string `json:"organization,omitempty"`
	Product      string `json:"product"`
	Quantity     int64  `json:"quantity"`
	// From nil is now, Until nil is never.
	From  *time.Time `json:"from,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Note may hold what a person wrote, so it is no search attribute.
	Note string `json:"note,omitempty"`
}

// GrantExtend is the input of ActGrantExtend.
type GrantExtend struct {
	// ID is the id of the grant that is made, Grant the one that it goes on from.
	ID    uuid.UUID `json:"id"`
	Grant uuid.UUID `json:"grant"`
	// Until nil is never.
	Until *time.Time `json:"until,omitempty"`
	Note  string     `json:"note,omitempty"`
}

// GrantManage is the input of ActGrantManage.
type GrantManage struct {
	// ID is the id of the grant that is made, Grant any of the line that it goes on.
	ID      uuid.UUID  `json:"id"`
	Grant   uuid.UUID  `json:"grant"`
	Until   *time.Time `json:"until,omitempty"`
	Forever bool       `json:"forever,omitempty"`
	// Quantity nil keeps it.
	Quantity *int64 `json:"quantity,omitempty"`
	// Organization is the slug or id of the one it is assigned to, empty for none.
	Organization string `json:"organization,omitempty"`
	Note         string `json:"note,omitempty"`
}

// GrantRevoke is the input of ActGrantRevoke.
type GrantRevoke struct {
	// Grant is any of the line.
	Grant uuid.UUID `json:"grant"`
}

// GrantResume is the input of ActGrantResume.
type GrantResume struct {
	// Grant is any of the line.
	Grant uuid.UUID `json:"grant"`
}

// GrantExpiry is the workflow that expires grants whose end has come, and begins those whose beginning has.
const GrantExpiry = "GrantExpiry"

// GrantExpiryWorkflowID is the id of the one workflow that sweeps the grants.
const GrantExpiryWorkflowID = "grant-expiry"

// ScheduleGrantExpiry keeps GrantExpiry running.
const ScheduleGrantExpiry = "grant-expiry"

// ActivitySweepGrants is the activity of GrantExpiry.
const ActivitySweepGrants = "SweepGrants"

// GrantExpiryInput starts GrantExpiry. The counts are set by continue-as-new only.
type GrantExpiryInput struct {
	Swept GrantSweep `json:"swept,omitzero"`
}

// GrantSweep counts what a sweep did.
type GrantSweep struct {
	Expired int `json:"expired,omitempty"`
	Begun   int `json:"begun,omitempty"`
	// Failed are grants that could not be swept; each says why, and bursar grant list --overdue shows it. Deferred are those whose
	// locks were busy. The next sweep tries both again.
	Failed   int `json:"failed,omitempty"`
	Deferred int `json:"deferred,omitempty"`
	// More says that the activity stopped before it had been through all.
	More bool `json:"more,omitempty"`
	// From is where the next activity goes on then.
	From GrantCursor `json:"from,omitzero"`
}

// GrantCursor is up to where a sweep is through.
type GrantCursor struct {
	// Beginning says that the grants whose end has come are done, and those whose beginning has are under way.
	Beginning bool      `json:"beginning,omitempty"`
	At        time.Time `json:"at,omitzero"`
	ID        uuid.UUID `json:"id,omitzero"`
}

// Add adds what another part of the sweep did, and goes on from where that stopped.
func (s GrantSweep) Add(part GrantSweep) GrantSweep {
	return GrantSweep{
		Expired: s.Expired + part.Expired, Begun: s.Begun + part.Begun, Failed: s.Failed + part.Failed, Deferred: s.Deferred + part.Deferred,
		More: part.More, From: part.From,
	}
}
