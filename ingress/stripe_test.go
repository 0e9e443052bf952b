package ingress

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/workflows/contract"
)

func TestSignatures(t *testing.T) {
	r := start(t, nil)
	body, now := updated("sub_1"), time.Now()
	for name, c := range map[string]struct {
		signature string
		status    int
		outcome   outcome
		says      string
	}{
		"current secret":    {sign(body, current, now), 200, outcomeSignalled, ""},
		"previous secret":   {sign(body, previous, now), 200, outcomeSignalled, ""},
		"both at once":      {sign(body, "whsec_unknown_0123456789", now) + "," + strings.SplitN(sign(body, previous, now), ",", 2)[1], 200, outcomeSignalled, ""},
		"almost too old":    {sign(body, current, now.Add(-4*time.Minute-50*time.Second)), 200, outcomeSignalled, ""},
		"almost too new":    {sign(body, current, now.Add(4*time.Minute+50*time.Second)), 200, outcomeSignalled, ""},
		"too old":           {sign(body, current, now.Add(-5*time.Minute-10*time.Second)), 400, outcomeTooOld, "older than 5m0s"},
		"from the future":   {sign(body, current, now.Add(5*time.Minute+10*time.Second)), 400, outcomeInFuture, "in the future"},
		"end of time":       {sign(body, current, time.Unix(1<<62, 0)), 400, outcomeInFuture, "in the future"},
		"wrong secret":      {sign(body, "whsec_unknown_0123456789", now), 400, outcomeBadSignature, "does not match"},
		"another body":      {sign(body+" ", current, now), 400, outcomeBadSignature, "does not match"},
		"missing":           {"", 400, outcomeBadSignature, "missing"},
		"nonsense":          {"hello", 400, outcomeBadSignature, "malformed"},
		"no time":           {strings.SplitN(sign(body, current, now), ",", 2)[1], 400, outcomeBadSignature, ""},
		"another scheme":    {strings.Replace(sign(body, current, now), "v1=", "v0=", 1), 400, outcomeBadSignature, ""},
		"fresh time forged": {fmt.Sprintf("t=%d,", now.Unix()) + strings.SplitN(sign(body, current, now.Add(-time.Hour)), ",", 2)[1], 400, outcomeBadSignature, ""},
		// The time that is held against the clock must be the one that the signature covers.
		"fresh time first": {fmt.Sprintf("t=%d,", now.Unix()) + sign(body, current, now.Add(-time.Hour)), 400, outcomeTooOld, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.temporal.signals())
			key := label("") + "/" + string(c.outcome)
			if c.status == 200 {
				key = "customer.subscription.updated/signalled"
			}
			count := r.counts.get(key)
			g := r.post(t, body, c.signature)
			require.Equal(t, c.status, g.status, g.text)
			require.Equal(t, count+1, r.counts.get(key))
			if c.status == 200 {
				require.Equal(t, answer{Received: true, Outcome: outcomeSignalled}, g.answer)
				require.Len(t, r.temporal.signals(), before+1)
				return
			}
			require.Contains(t, g.answer.Error, c.says)
			require.Len(t, r.temporal.signals(), before, "a refused webhook must have no effect")
		})
	}
}

func TestWhichSubscriptionAnEventNames(t *testing.T) {
	r := start(t, nil)
	long := "sub_" + strings.Repeat("a", 251)
	for name, c := range map[string]struct {
		kind, object string
		status       int
		outcome      outcome
		sub, session string
	}{
		"subscription":            {"customer.subscription.deleted", `{"id":"sub_1"}`, 200, outcomeSignalled, "sub_1", ""},
		"longest id":              {"customer.subscription.created", `{"id":"` + long + `"}`, 200, outcomeSignalled, long, ""},
		"invoice":                 {"invoice.paid", `{"id":"in_1","subscription":"sub_2"}`, 200, outcomeSignalled, "sub_2", ""},
		"invoice, later version":  {"invoice.paid", `{"id":"in_1","parent":{"type":"subscription_details","subscription_details":{"subscription":"sub_3"}}}`, 200, outcomeSignalled, "sub_3", ""},
		"invoice, expanded":       {"invoice.payment_failed", `{"subscription":{"id":"sub_4","object":"subscription"}}`, 200, outcomeSignalled, "sub_4", ""},
		"later version, expanded": {"invoice.paid", `{"parent":{"subscription_details":{"subscription":{"id":"sub_5"}}}}`, 200, outcomeSignalled, "sub_5", ""},
		"one-off invoice":         {"invoice.paid", `{"id":"in_1","subscription":null,"parent":null}`, 200, outcomeNothingToDo, "", ""},
		"quote's invoice":         {"invoice.paid", `{"id":"in_1","parent":{"type":"quote_details","subscription_details":null}}`, 200, outcomeNothingToDo, "", ""},
		"checkout":                {"checkout.session.completed", `{"id":"cs_test_1","subscription":"sub_6"}`, 200, outcomeSignalled, "sub_6", "cs_test_1"},
		"checkout paid later":     {"checkout.session.async_payment_succeeded", `{"id":"cs_live_1","subscription":{"id":"sub_7"}}`, 200, outcomeSignalled, "sub_7", "cs_live_1"},
		"payment checkout":        {"checkout.session.completed", `{"id":"cs_test_1","subscription":null}`, 200, outcomeNothingToDo, "", ""},
		"schedule":                {"subscription_schedule.updated", `{"id":"sub_sched_1","subscription":"sub_8"}`, 200, outcomeSignalled, "sub_8", ""},
		"released schedule":       {"subscription_schedule.released", `{"id":"sub_sched_1","subscription":null,"released_subscription":"sub_9"}`, 200, outcomeSignalled, "sub_9", ""},
		"unknown of a family":     {"customer.subscription.something_new", `{"id":"sub_1"}`, 200, outcomeSignalled, "sub_1", ""},
		"unknown type":            {"charge.succeeded", `{"id":"ch_1"}`, 200, outcomeIgnored, "", ""},
		"expired checkout":        {"checkout.session.expired", `{"id":"cs_test_1"}`, 200, outcomeIgnored, "", ""},
		"unknown type, no object": {"v2.core.account.updated", `null`, 200, outcomeIgnored, "", ""},

		"another kind of id":     {"customer.subscription.updated", `{"id":"cus_1"}`, 400, outcomeBadID, "", ""},
		"prefix only":            {"customer.subscription.updated", `{"id":"sub_"}`, 400, outcomeBadID, "", ""},
		"too long":               {"customer.subscription.updated", `{"id":"` + long + `a"}`, 400, outcomeBadID, "", ""},
		"a slash":                {"customer.subscription.updated", `{"id":"sub_1/../2"}`, 400, outcomeBadID, "", ""},
		"a line break":           {"invoice.paid", `{"subscription":"sub_1\n2"}`, 400, outcomeBadID, "", ""},
		"a letter beyond ASCII":  {"invoice.paid", `{"subscription":"sub_é"}`, 400, outcomeBadID, "", ""},
		"a number":               {"invoice.paid", `{"subscription":7}`, 400, outcomeBadID, "", ""},
		"a list":                 {"invoice.paid", `{"subscription":["sub_1"]}`, 400, outcomeBadID, "", ""},
		"an object without id":   {"invoice.paid", `{"subscription":{}}`, 400, outcomeBadID, "", ""},
		"bad checkout id":        {"checkout.session.completed", `{"id":"x","subscription":"sub_1"}`, 400, outcomeBadID, "", ""},
		"no id":                  {"customer.subscription.updated", `{}`, 400, outcomeMalformed, "", ""},
		"no object":              {"customer.subscription.updated", `null`, 400, outcomeMalformed, "", ""},
		"a text for an object":   {"invoice.paid", `"in_1"`, 400, outcomeMalformed, "", ""},
		"a text for the parent":  {"invoice.paid", `{"parent":"x"}`, 400, outcomeMalformed, "", ""},
		"a type with line break": {`x\ny`, `{}`, 400, outcomeMalformed, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.temporal.signals())
			g := r.send(t, payload(c.kind, c.object))
			require.Equal(t, c.status, g.status, g.text)
			after := r.temporal.signals()
			if c.outcome == outcomeSignalled {
				require.Len(t, after, before+1)
				require.Equal(t, signalled{c.sub, contract.ReconcileSignal{EventID: "evt_1", EventType: c.kind, CheckoutSession: c.session}}, after[before])
			} else {
				require.Len(t, after, before)
			}
			if c.status == 200 {
				require.Equal(t, answer{Received: true, Outcome: c.outcome}, g.answer)
			} else {
				require.NotEmpty(t, g.answer.Error)
				require.Contains(t, r.log.String(), `"outcome":"`+string(c.outcome)+`"`)
			}
		})
	}
	require.EqualValues(t, 3, r.counts.get("other/ignored"))
	require.EqualValues(t, 1, r.counts.get("other/signalled"), "a type that is not listed makes no series of its own")
	require.EqualValues(t, 2, r.counts.get("invoice.paid/nothing_to_do"))
}

func TestOtherAPIVersionsAreFine(t *testing.T) {
	r := start(t, nil)
	for _, version := range []string{"2019-12-03", "2025-09-30.clover", ""} {
		body := strings.Replace(updated("sub_1"), "2024-06-20", version, 1)
		require.Equal(t, 200, r.send(t, body).status)
	}
	require.Len(t, r.temporal.signals(), 3)
}

func TestMalformedBodies(t *testing.T) {
	r := start(t, nil)
	for _, body := range []string{"", "{", "null", "[]", `"x"`, "{}", `{"id":"evt_1"}`, `{"type":"invoice.paid"}`, `{"id":7,"type":"x"}`,
		`{"id":"evt/1","type":"invoice.paid"}`, updated("sub_1") + "x", "\xff\xfe", strings.Repeat("[", 100000)} {
		g := r.send(t, body)
		require.Equal(t, 400, g.status, g.text)
		require.NotEmpty(t, g.answer.Error)
	}
	require.Empty(t, r.temporal.signals())
}

func TestBodyLimit(t *testing.T) {
	r := start(t, nil)
	fill := func(size int) string {
		head, tail := `{"id":"evt_1","type":"customer.subscription.updated","pad":"`, `","data":{"object":{"id":"sub_1"}}}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	require.Equal(t, 200, r.send(t, fill(maxBody)).status)
	g := r.send(t, fill(maxBody+1))
	require.Equal(t, 413, g.status)
	require.NotEmpty(t, g.answer.Error)
	require.Len(t, r.temporal.signals(), 1)
	require.EqualValues(t, 1, r.counts.get("none/too_large"))
}

func TestMethods(t *testing.T) {
	r := start(t, nil)
	for _, m := range []string{"GET", "PUT", "DELETE", "HEAD"} {
		g := r.do(t, m, "/webhooks/stripe", "", "")
		require.Equal(t, 405, g.status)
		require.Equal(t, "POST", g.header.Get("Allow"))
	}
	g := r.do(t, "POST", "/healthz", "", "")
	require.Equal(t, 405, g.status)
	require.Equal(t, "GET, HEAD", g.header.Get("Allow"))
	require.Equal(t, 404, r.do(t, "POST", "/", "", "").status)
}

func TestTemporalDownThenBack(t *testing.T) {
	r := start(t, func(c *Config) { c.RetryAfter = 30 * time.Second })
	r.temporal.fail(errDown)
	body := updated("sub_1")
	g := r.send(t, body)
	require.Equal(t, http.StatusServiceUnavailable, g.status)
	require.Equal(t, "30", g.header.Get("Retry-After"))
	require.NotContains(t, g.text, errDown.Error(), "the cause is for the log")
	require.Contains(t, r.log.String(), errDown.Error())
	require.EqualValues(t, 1, r.counts.get("customer.subscription.updated/unavailable"))
	// A type without use needs no Temporal.
	require.Equal(t, 200, r.send(t, payload("charge.succeeded", `{}`)).status)

	r.temporal.fail(nil)
	require.Equal(t, 200, r.send(t, body).status)
	require.Len(t, r.temporal.signals(), 1)
}

func TestSlowTemporalIsBounded(t *testing.T) {
	r := start(t, func(c *Config) { c.SignalTimeout = 50 * time.Millisecond })
	r.temporal.block = make(chan struct{})
	began := time.Now()
	g := r.send(t, updated("sub_1"))
	require.Equal(t, http.StatusServiceUnavailable, g.status)
	require.Equal(t, "10", g.header.Get("Retry-After"))
	require.Less(t, time.Since(began), 5*time.Second)
	require.Empty(t, r.temporal.signals())
}

func TestTwoHundredAtOnce(t *testing.T) {
	r := start(t, nil)
	var wg sync.WaitGroup
	errs := make(chan error, 200)
	for i := range 200 {
		wg.Go(func() {
			body := updated(fmt.Sprintf("sub_%d", i%20))
			g, err := try(t.Context(), r.url, "POST", "/webhooks/stripe", body, sign(body, current, time.Now()))
			if err == nil && g.status != 200 {
				err = fmt.Errorf("answered %d: %s", g.status, g.text)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Len(t, r.temporal.signals(), 200)
}

// Nothing that must stay secret is in a log line or an answer, whatever the outcome.
func TestNothingSecretIsLogged(t *testing.T) {
	r := start(t, nil)
	var answers strings.Builder
	var signatures []string
	post := func(body, secret string, at time.Time) {
		signature := sign(body, secret, at)
		signatures = append(signatures, strings.SplitN(signature, "v1=", 2)[1])
		answers.WriteString(r.post(t, body, signature).text)
	}
	now := time.Now()
	post(updated("sub_1"), current, now)
	post(updated("sub_1"), previous, now)
	post(updated("sub_1"), "whsec_wrong_0123456789abcdef", now)
	post(updated("sub_1"), current, now.Add(-time.Hour))
	post(updated("sub_1"), current, now.Add(time.Hour))
	post(updated(email), current, now)
	post(payload("invoice.paid", `{"subscription":"`+email+`"}`), current, now)
	post(payload("charge.succeeded", `{"receipt_email":"`+email+`"}`), current, now)
	post(`{"id":"`+email+`","type":"`+email+`"}`, current, now)
	post(`{"broken":"`+email, current, now)
	r.temporal.fail(errDown)
	post(updated("sub_1"), current, now)

	shown := r.log.String() + answers.String()
	require.Contains(t, shown, `"object_id":"sub_1"`)
	require.Contains(t, shown, `"event_id":"evt_1"`)
	require.Contains(t, shown, `"duration":`)
	require.Equal(t, len(signatures), strings.Count(r.log.String(), `"msg":"webhook"`))
	for _, secret := range append(signatures, current, previous, "whsec_", email, "ada.member", "metadata") {
		require.NotContains(t, shown, secret)
	}
}

func FuzzBody(f *testing.F) {
	for _, body := range []string{updated("sub_1"), payload("invoice.paid", `{"parent":{"subscription_details":{"subscription":{"id":"sub_1"}}}}`),
		payload("checkout.session.completed", `{"id":"cs_1","subscription":"sub_1"}`), payload("subscription_schedule.released", `{"released_subscription":"sub_1"}`),
		`{"id":"evt_1","type":"invoice.paid","data":{"object":{"subscription":{"id":{}}}}}`, "", "null", "\x00"} {
		f.Add(body)
	}
	r := build(f, nil)
	f.Fuzz(func(t *testing.T, body string) {
		before := len(r.temporal.signals())
		rec, req := newRequest(body)
		r.ServeHTTP(rec, req)
		signals := r.temporal.signals()[before:]
		switch {
		case rec.Code == 200 && len(signals) == 1:
			s := signals[0]
			require.Regexp(t, `^sub_[0-9A-Za-z_]{1,251}$`, s.subscription)
			require.Regexp(t, `^[0-9A-Za-z_]{1,255}$`, s.EventID)
			require.Regexp(t, `^[0-9A-Za-z_.]{1,255}$`, s.EventType)
			require.Regexp(t, `^(cs_[0-9A-Za-z_]+)?$`, s.CheckoutSession)
		case rec.Code == 200 || rec.Code == 400 || (rec.Code == 413 && len(body) > maxBody):
			require.Empty(t, signals)
		default:
			t.Fatalf("answered %d: %s", rec.Code, rec.Body)
		}
	})
}
