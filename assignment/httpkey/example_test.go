package httpkey_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/slicer-project/slicer/assignment/httpkey"
)

func Example() {
	users, err := httpkey.ParsePattern("/users/{id}/")
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := httpkey.New(httpkey.Wildcard(users, "id"), httpkey.Header("X-User"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Find(httptest.NewRequest("GET", "/users/4711/mail", nil)))
	fmt.Println(f.Explain(httptest.NewRequest("GET", "/about", nil)))
	// Output:
	// 4711 true
	// the request has no key: wildcard {id} of path /users/{id}/ is absent, header X-User is absent
}
