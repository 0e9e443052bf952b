package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

func TestOrgCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	require.Equal(t, "There is no organisation yet: bursar org create makes one.\n", s.must("org", "list"))
	require.Equal(t, "There is no organisation type yet: bursar catalog apply makes them.\n", s.must("org", "types"))
	require.Contains(t, s.fails(1, "org", "create", "acme", "--name", "Acme", "--type", "club"), "bursar catalog apply")
	s.must("catalog", "apply", s.file(catalogFile), "--yes")

	require.Equal(t, `Workflow act/(uuid)
Made acme (Acme Ltd), type club
  id    (uuid)
  pool  (uuid)

acme (Acme Ltd), type club, at (moment)

KEY                VALUE    SINCE                 WHY
storage.gigabytes  1        (moment)  Free, the default of its type; the floor of membership
support.phone      nothing                        it holds no product that gives it; these do: gold
`, steady(s.must("org", "create", "acme", "--name", "Acme Ltd", "--type", "club")))
	require.Equal(t, "bursar: organisation \"acme\" exists already\n", s.fails(1, "org", "create", "acme", "--name", "Acme", "--type", "club"))
	require.Equal(t, `bursar: no organisation type is called "clubb"; there are: club`+"\n", s.fails(1, "org", "create", "other", "--name", "Other", "--type", "clubb"))
	require.Contains(t, s.fails(2, "org", "create", "other", "--type", "club"), "--name is missing")
	_, out, _ := s.run("org", "create", "No Slug", "--name", "Other", "--type", "club")
	require.Empty(t, out, "what cannot be is refused before a workflow starts")

	require.Equal(t, "SLUG  NAME      TYPE  CREATED               HOLDS\nacme  Acme Ltd  club  (moment)  free\n", steady(s.must("org", "list")))
	require.Equal(t, "TYPE  NAME  DEFAULT\nclub  Club  free\n", s.must("org", "types"))
	listed := decode[[]map[string]any](t, s.must("org", "list", "--json"))
	require.Equal(t, "acme", listed[0]["slug"])
	require.Equal(t, "free", listed[0]["conferring"])
	require.Equal(t, "free", decode[[]map[string]any](t, s.must("org", "types", "--json"))[0]["default"])
	made := decode[map[string]any](t, s.must("org", "create", "json", "--name", "J", "--type", "club", "--json"))
	require.Equal(t, "json", made["slug"])
	require.Len(t, made["report"].(map[string]any)["lines"], 1)
}

func TestEntitlementsAnswersWhyAMemberHasOrHasNot(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	require.Equal(t, `acme (Acme Ltd), type club, at (moment)

KEY                VALUE  SINCE                 WHY
storage.gigabytes  100    (moment)  Gold membership, subscription sub_1 (active); tier 1 of membership
support.phone      yes    (moment)  Gold membership, subscription sub_1 (active); tier 1 of membership

Stripe: cus_1
`, steady(s.must("entitlements", "acme")))

	s.subscription(func(ctx context.Context, tx *lockorder.Tx, act entitlements.Act, sub entitlements.Subscription) error {
		sub.Suspended = true
		_, err := entitlements.ConvergeSubscription(ctx, tx, act, sub)
		return err
	})
	s.exec(`INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, waiting_customer, parked_at, last_tried_at)
		VALUES ('subscription', 'sub_2', 'failed', 'Stripe shows a quantity of 2000000.', 'sub_2', 'cus_1', now(), now())`)
	require.Equal(t, `acme (Acme Ltd), type club, at (moment)

KEY                VALUE    SINCE  WHY
storage.gigabytes  nothing         Gold membership would give it, but does not confer: see below
support.phone      nothing         Gold membership would give it, but does not confer: see below

Held but not conferring:
PRODUCT          HELD THROUGH                    SINCE                 WHY NOT
Gold membership  subscription sub_1 (suspended)  (moment)  suspended: Stripe shows its subscription as unpaid or paused; it keeps its place on membership, so nothing below it there confers

Stripe: cus_1

Parked, and so not applied:
PARKED              ORGANISATION  REASON  SINCE                 TRIES  WHAT WOULD FREE IT
subscription sub_2  acme          failed  (moment)      1  Stripe shows a quantity of 2000000.
`, steady(s.must("entitlements", "acme")))

	report := decode[struct {
		Organization organizationJSON `json:"organization"`
		entitlements.Report
		Customers []string     `json:"customers"`
		Parked    []parkedJSON `json:"parked"`
	}](t, s.must("entitlements", "acme", "--json"))
	require.Equal(t, "acme", report.Organization.Slug)
	require.Equal(t, entitlements.WhySuspended, report.Held[0].Why)
	require.Equal(t, []string{"cus_1"}, report.Customers)
	require.Equal(t, "failed", report.Parked[0].Reason)
}

func TestEntitlementsOfWhoHasNothing(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.Equal(t, "bursar: no organisation is called \"acme\"; there is none yet: bursar org create makes one\n", s.fails(1, "entitlements", "acme"))
	s.must("catalog", "apply", s.file("organization_types: [{id: bare}]"), "--yes")
	s.organization("acme", "Acme", "bare")
	require.Equal(t, "acme (Acme), type bare, at (moment)\n\nIt may use nothing.\n\n"+
		"No Stripe customer is linked to acme, so no subscription can reach it: bursar customer link CUSTOMER acme\n", steady(s.must("entitlements", "acme")))
	require.Equal(t, "bursar: no organisation is called \"amce\"; near it: acme\n", s.fails(1, "entitlements", "amce"))
}

func TestEntitlementsInThePast(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	var then string
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`).Scan(&then))
	s.subscription(func(ctx context.Context, tx *lockorder.Tx, act entitlements.Act, sub entitlements.Subscription) error {
		_, err := entitlements.EndSubscription(ctx, tx, act, sub.ID, entitlements.EndSubscriptionEnded)
		return err
	})
	require.Equal(t, `acme (Acme Ltd), type club, at (moment)

KEY                VALUE  SINCE                 WHY
storage.gigabytes  100    (moment)  set by subscription-reconcile (workflow subscription/sub_1)
support.phone      yes    (moment)  set by subscription-reconcile (workflow subscription/sub_1)

Held then:
PRODUCT          HELD THROUGH        SINCE                 WHAT BECAME OF IT
Gold membership  subscription sub_1  (moment)  ended (moment) (subscription_ended)
`, steady(s.must("entitlements", "acme", "--at", then)))
	now := steady(s.must("entitlements", "acme"))
	require.Contains(t, now, "Free, the default of its type; the floor of membership")
	require.Contains(t, now, `Held before, the latest first:
PRODUCT          HELD THROUGH        SINCE                 UNTIL                 WHY IT ENDED
Gold membership  subscription sub_1  (moment)  (moment)  the subscription is over
`)
	require.Contains(t, s.fails(2, "entitlements", "acme", "--at", "2999-01-01"), "is in the future")
	require.Contains(t, s.fails(2, "entitlements", "acme", "--at", "yesterday"), `"yesterday" is no moment`)
}

// Support knows a Stripe id more often than a slug.
func TestEntitlementsByStripeId(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	s.exec(`INSERT INTO stripe.subscriptions (id, version, customer_id, status, stripe_created_at, reconciled_at)
		VALUES ('sub_1', 1, 'cus_1', 'active', now(), now()), ('sub_2', 1, 'cus_2', 'active', now(), now())`)
	for _, name := range []string{"cus_1", "sub_1"} {
		require.Contains(t, s.must("entitlements", name), "acme (Acme Ltd)")
	}
	require.Equal(t, "bursar: customer cus_2 is linked to no organisation; link it: bursar customer link cus_2 ORG\n", s.fails(1, "entitlements", "sub_2"))
	require.Contains(t, s.fails(1, "entitlements", "sub_3"), "subscription sub_3 has not been read from Stripe")
}

func TestWrapWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "one two\nthree\nsub_0123456789\n100 from\nx", wrapWords("one two three sub_0123456789\n100 from x", 8))
	require.Equal(t, "", wrapWords("", 8))
}

func TestCustomerCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("catalog", "apply", s.file(catalogFile), "--yes")
	s.organization("acme", "Acme", "club")
	s.organization("other", "Other", "club")
	require.Contains(t, s.must("customer", "list"), "No Stripe customer is linked")
	s.park("sub_7", "cus_1")
	s.park("sub_8", "cus_2")

	require.Equal(t, "Linked cus_1 to acme (Acme).\nFreed: subscription sub_7, which will be tried again by the worker shortly.\n", s.must("customer", "link", "cus_1", "acme"))
	require.Contains(t, s.must("customer", "link", "cus_1", "acme"), "Nothing to do: cus_1 is linked to acme already.")
	require.Contains(t, s.fails(1, "customer", "link", "cus_1", "other"), "linked to organisation acme")
	require.Contains(t, s.fails(1, "customer", "link", "price_1", "acme"), "not the id of a Stripe customer")
	require.Contains(t, s.fails(1, "customer", "link", "cus_3", "acne"), "near it: acme")
	require.Equal(t, "CUSTOMER  ORGANISATION  LINKED                BY\ncus_1     acme          (moment)  operator\n", steady(s.must("customer", "list", "acme")))
	require.Contains(t, s.must("customer", "list", "other"), "No Stripe customer is linked")
	require.Equal(t, "cus_1", decode[[]customerJSON](t, s.must("customer", "list", "--json"))[0].Customer)
}

func TestParkedCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	require.Equal(t, "Nothing is parked.\n", s.must("parked"))
	require.Equal(t, "Nothing is parked.\n", s.must("parked", "retry", "--all"))
	s.park("sub_7", "cus_1")
	s.park("sub_8", "cus_2")
	require.Equal(t, `PARKED              ORGANISATION  REASON            SINCE                 TRIES  WHAT WOULD FREE IT
subscription sub_7  unknown       unknown_customer  (moment)      1  Customer cus_1 is linked to no organisation.
subscription sub_8  unknown       unknown_customer  (moment)      1  Customer cus_2 is linked to no organisation.
`, steady(s.must("parked")))
	require.Len(t, decode[[]parkedJSON](t, s.must("parked", "--json")), 2)

	require.Equal(t, "subscription sub_7\n1 parked object will be tried again by the worker shortly.\n", s.must("parked", "retry", "sub_7"))
	require.Contains(t, s.must("parked"), "cus_1 is linked to no organisation. (another try is under way)")
	require.Contains(t, s.must("parked", "retry", "--all"), "2 parked objects will be tried again")
	require.Contains(t, s.fails(1, "parked", "retry", "sub_none"), "nothing is parked under sub_none")
	require.Contains(t, s.fails(2, "parked", "retry"), "or --all")
	require.Contains(t, s.fails(2, "parked", "retry", "sub_7", "--all"), "not both")
	require.Contains(t, s.fails(2, "parked", "rety"), "did you mean retry?")
}
