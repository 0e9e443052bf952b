package standin

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// maxRequest bounds a request's body.
const maxRequest = 1 << 20

// request is one API call, as a handler sees it. Handlers run with the mutex held.
type request struct {
	*http.Request
	form *form
	id   string // Request-Id
	key  string // idempotency key, or empty
	now  time.Time
}

// handler answers one call with a JSON object.
type handler func(s *Server, r *request) (object, *apiError)

// reply is what was answered to an idempotency key.
type reply struct {
	fingerprint [sha256.Size]byte
	status      int
	body        []byte
	headers     http.Header
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range map[string]handler{
		"POST /v1/customers":                                    createCustomer,
		"GET /v1/customers":                                     listCustomers,
		"GET /v1/customers/{id}":                                getCustomer,
		"POST /v1/customers/{id}":                               updateCustomer,
		"POST /v1/products":                                     createProduct,
		"GET /v1/products":                                      listProducts,
		"GET /v1/products/{id}":                                 getProduct,
		"POST /v1/products/{id}":                                updateProduct,
		"POST /v1/prices":                                       createPrice,
		"GET /v1/prices":                                        listPrices,
		"GET /v1/prices/{id}":                                   getPrice,
		"POST /v1/prices/{id}":                                  updatePrice,
		"POST /v1/subscriptions":                                createSubscription,
		"GET /v1/subscriptions":                                 listSubscriptions,
		"GET /v1/subscriptions/{id}":                            getSubscription,
		"POST /v1/subscriptions/{id}":                           updateSubscription,
		"DELETE /v1/subscriptions/{id}":                         cancelSubscription,
		"POST /v1/subscriptions/{id}/resume":                    resumeSubscription,
		"GET /v1/subscription_items":                            listItems,
		"GET /v1/subscription_items/{id}":                       getItem,
		"POST /v1/checkout/sessions":                            createSession,
		"GET /v1/checkout/sessions":                             listSessions,
		"GET /v1/checkout/sessions/{id}":                        getSession,
		"POST /v1/checkout/sessions/{id}/expire":                expireSession,
		"POST /v1/test_helpers/checkout/sessions/{id}/complete": completeSession,
		"GET /v1/events":                                        listEvents,
		"GET /v1/events/{id}":                                   getEvent,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, h) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(*Server, *request) (object, *apiError) {
			return nil, &apiError{status: http.StatusNotFound, Type: typeInvalidRequest,
				Message: "Unrecognized request URL (" + r.Method + ": " + r.URL.Path + ")."}
		})
	})
	return mux
}

// ServeHTTP answers one API call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// serve does what is common to all calls: authorisation, the test controls, idempotency, encoding.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, h handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the connection is gone, or the body is far beyond what a client sends
	}
	subscription := retrieved(r)
	s.mu.Lock()
	if subscription != "" {
		s.reads[subscription]++
	}
	requestID := s.ids.request()
	hang, until := s.hang, s.hangUntil
	s.mu.Unlock()
	if r.Method == http.MethodGet && !s.wait(r, hang, until) {
		return
	}
	answer := s.answer(r, body, requestID, h)
	s.mu.Lock()
	onRead := s.onRead
	s.mu.Unlock()
	if subscription != "" && onRead != nil {
		onRead(subscription)
	}
	for k, v := range answer.headers {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", requestID)
	w.Header().Set("Stripe-Version", stripe.APIVersion)
	w.WriteHeader(answer.status)
	w.Write(answer.body) // an error means that the client left
}

// retrieved returns the subscription that a call retrieves by id, or empty.
func retrieved(r *http.Request) string {
	if r.Method == http.MethodGet && r.Pattern == "GET /v1/subscriptions/{id}" {
		return r.PathValue("id")
	}
	return ""
}

// wait holds a read up as Hang asks. It is false when the client left meanwhile or the server closes.
func (s *Server) wait(r *http.Request, d time.Duration, until <-chan struct{}) bool {
	if d <= 0 && until == nil {
		return true
	}
	var timer <-chan time.Time
	if until == nil {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
		return true
	case <-until:
		return true
	case <-r.Context().Done():
		return false
	case <-s.life.Done():
		return false
	}
}

// answer runs the handler under the mutex, or replays what its idempotency key got before.
func (s *Server) answer(r *http.Request, body []byte, requestID string, h handler) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.authorise(r); e != nil {
		return errorReply(e)
	}
	if s.fail.left > 0 {
		s.fail.left--
		return errorReply(failure(s.fail.status, s.fail.retryAfter))
	}
	key := ""
	if r.Method == http.MethodPost {
		key = r.Header.Get("Idempotency-Key") // reads and deletes are idempotent by themselves
	}
	fingerprint := sha256.Sum256([]byte(r.Method + " " + r.URL.RequestURI() + "\n" + string(body)))
	if old, ok := s.replies[key]; ok && key != "" {
		if old.fingerprint != fingerprint {
			return errorReply(&apiError{status: http.StatusBadRequest, Type: typeIdempotency,
				Message: "Keys for idempotent requests can only be used with the same endpoint and parameters they were first used with. Try using a key other than '" + key + "' if you meant to execute a different request."})
		}
		replayed := *old
		replayed.headers = http.Header{"Idempotent-Replayed": {"true"}, "Idempotency-Key": {key}}
		return &replayed
	}
	result, e := s.run(r, body, requestID, key, h)
	if e != nil {
		return errorReply(e) // a refused request has done nothing, so its key stays free
	}
	out := &reply{fingerprint: fingerprint, status: http.StatusOK, body: mustJSON(result)}
	if key != "" {
		out.headers = http.Header{"Idempotency-Key": {key}}
		s.replies[key] = out
	}
	return out
}

func (s *Server) run(r *http.Request, body []byte, requestID, key string, h handler) (object, *apiError) {
	values := r.URL.Query()
	if r.Method == http.MethodPost || len(body) > 0 {
		if ct := r.Header.Get("Content-Type"); len(body) > 0 && !strings.HasPrefix(ct, "application/x-www-form-urlencoded") {
			return nil, invalid("", "Invalid content type: parameters must be form-encoded")
		}
		posted, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, invalid("", "Invalid form encoding")
		}
		for k, v := range posted {
			values[k] = append(values[k], v...)
		}
	}
	params, e := parseForm(values)
	if e != nil {
		return nil, e
	}
	return h(s, &request{Request: r, form: params, id: requestID, key: key, now: s.now()})
}

// authorise checks the key and the API version.
func (s *Server) authorise(r *http.Request) *apiError {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		key, _, ok = r.BasicAuth()
	}
	if !ok || key == "" {
		return &apiError{status: http.StatusUnauthorized, Type: typeInvalidRequest,
			Message: "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."}
	}
	known := false
	for _, prefix := range []string{"sk_test_", "rk_test_", "sk_live_", "rk_live_"} {
		known = known || strings.HasPrefix(key, prefix)
	}
	if !known || (s.opts.Key != "" && key != s.opts.Key) {
		return &apiError{status: http.StatusUnauthorized, Type: typeInvalidRequest,
			Message: "Invalid API Key provided: " + key[:min(8, len(key))] + "****"}
	}
	if v := r.Header.Get("Stripe-Version"); v != "" && v != stripe.APIVersion {
		return invalid("", "Invalid Stripe API version: %s; the stand-in speaks %s", v, stripe.APIVersion)
	}
	return nil
}

func errorReply(e *apiError) *reply {
	out := &reply{status: e.status, headers: http.Header{}}
	e.headers(out.headers)
	b, err := json.Marshal(map[string]*apiError{"error": e})
	if err != nil {
		panic("stripe stand-in: an error that is no JSON: " + err.Error())
	}
	out.body = b
	return out
}

// expansions reads the expand parameter; each must be one of those allowed.
func (r *request) expansions(allowed ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range r.form.strs("expand") {
		found := false
		for _, a := range allowed {
			found = found || a == name
		}
		if !found {
			r.form.fail(invalid("expand", "This property cannot be expanded (%s).", name))
			continue
		}
		out[name] = true
	}
	return out
}
