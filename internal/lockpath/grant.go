package lockpath

import "github.com/bursarhq/bursar/lockorder"

// The rows that an act on a line of grants takes.
var (
	poolOfGrant = Step{Class: lockorder.Pool, Of: "of the pool that the grant is for", When: "where it names an organisation"}
	owedOfGrant = Step{Class: lockorder.ChangeObligation, Of: "of what changes owe that pool, which is settled first", When: "where they do"}
	headOfLine  = Step{Class: lockorder.GrantLineageHead, Of: "of the line's head, which is read again in a statement after it"}
)

// GrantIssue is activities.Operator.GrantIssue.
var GrantIssue = path(Path{
	Name: "grant-issue", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{poolOfGrant, owedOfGrant},
	Does: "Makes a grant with its position, and settles the pool.",
	By:   []string{"bursar grant issue"},
})

// GrantExtend is activities.Operator.GrantExtend.
var GrantExtend = path(Path{
	Name: "grant-extend", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{poolOfGrant, owedOfGrant, headOfLine},
	Does: "Closes the head of a line and makes the grant that goes on from it, with a later end.",
	By:   []string{"bursar grant extend"},
})

// GrantManage is activities.Operator.GrantManage.
var GrantManage = path(Path{
	Name: "grant-manage", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{
		{Class: lockorder.Pool, Of: "of the pool that the grant is for, and of the one that it is assigned to", When: "where it names an organisation, or is to"},
		owedOfGrant, headOfLine,
	},
	Does: "Closes the head of a line and makes the grant that goes on from it, with another end or quantity, or for an organisation.",
	By:   []string{"bursar grant manage"},
})

// GrantRevoke is activities.Operator.GrantRevoke.
var GrantRevoke = path(Path{
	Name: "grant-revoke", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{poolOfGrant, owedOfGrant, headOfLine},
	Does: "Ends a line of grants, and settles the pool: what it displaced resumes, and the floor returns where its ladder is vacant.",
	By:   []string{"bursar grant revoke"},
})

// GrantResume is activities.Operator.GrantResume.
var GrantResume = path(Path{
	Name: "grant-resume", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{{Class: lockorder.Pool, Of: "of the pool that the grant is for"}, owedOfGrant, headOfLine},
	Does: "Settles the pool of a line of grants.",
	By:   []string{"bursar grant resume"},
})

// GrantExpire is activities.Grants.SweepGrants, a grant at a time.
var GrantExpire = path(Path{
	Name: "grant-expire", Area: Grants, Kind: lockorder.Materializing,
	Rows: []Step{poolOfGrant, owedOfGrant, headOfLine},
	Does: "Closes a grant whose end has come, or notes that one has begun, and settles the pool.",
	By:   []string{"activity SweepGrants"},
})

// GrantFailure is activities.Grants.SweepGrants where the grant's own transaction failed.
var GrantFailure = path(Path{
	Name: "grant-failure", Area: Grants, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.GrantLineageHead, Of: "of the grant"}},
	Does: "Notes why a grant could not be begun or expired; the next sweep tries it again.",
	By:   []string{"activity SweepGrants"},
})
