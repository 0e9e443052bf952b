// Package sms sends in a way that does not show.
package sms

func Send(text string) error { return nil }
