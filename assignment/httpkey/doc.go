// Package httpkey finds the key of an HTTP request where a declarative rule says
// that it is: in a header, a cookie, a query parameter, a segment of the path, or
// the client's address, or in the first of several of these that the request
// has. It is the part of the Slicer paper's HTTP front end that selects "routing
// features from a request's URL, parameters, cookies, headers and more" (section
// 2.3), for clients, proxies and servers alike.
//
//	f, err := httpkey.New(httpkey.Header("X-User"), httpkey.Cookie("session"))
//	if err != nil {
//		return err
//	}
//	key, ok := f.Find(r)
//
// A value that is empty, longer than MaxLen or malformed is no key: the next
// source is asked. Explain says what was wrong with each.
//
// EncodeKey and DecodeKey carry any key in a header. Everything here is pure,
// and what New and ParsePattern return is safe for concurrent use.
package httpkey
