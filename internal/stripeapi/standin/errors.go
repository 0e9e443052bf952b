package standin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error types as Stripe names them.
const (
	typeInvalidRequest = "invalid_request_error"
	typeIdempotency    = "idempotency_error"
	typeAPI            = "api_error"
)

// apiError is an error object as Stripe sends it, under "error".
type apiError struct {
	status     int
	retryAfter time.Duration

	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`
}

// Error returns the message, for the Go methods of Server that meet the same refusals as the API.
func (e *apiError) Error() string { return "stripe stand-in: " + e.Message }

func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, Type: typeInvalidRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// missing is the answer for an id that does not exist: 404 when the address names it, 400 when a parameter does.
func missing(status int, kind, id, param string) *apiError {
	return &apiError{status: status, Type: typeInvalidRequest, Code: "resource_missing", Param: param,
		Message: fmt.Sprintf("No such %s: '%s'", kind, id)}
}

// failure is the error object for a status that a test asked for.
func failure(status int, retryAfter time.Duration) *apiError {
	e := &apiError{status: status, retryAfter: retryAfter, Type: typeInvalidRequest, Message: "The stand-in was told to fail this request."}
	switch {
	case status == http.StatusTooManyRequests:
		e.Code, e.Message = "rate_limit", "Request rate limit exceeded."
	case status == http.StatusUnauthorized:
		e.Message = "Invalid API Key provided."
	case status == http.StatusNotFound:
		e.Code = "resource_missing"
	case status >= 500:
		e.Type = typeAPI
	}
	return e
}

func (e *apiError) headers(h http.Header) {
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(e.retryAfter.Round(time.Second)/time.Second)))
	}
}
