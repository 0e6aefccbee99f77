package rulefile_test

import (
	"fmt"

	"github.com/slicer-project/slicer/clerk/front/rulefile"
)

func ExampleParse() {
	rules, err := rulefile.Parse("rules.yaml", []byte(`
rules:
  - path: /users/{id}/
    job: profiles
    key: {wildcard: id}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules.List[0].Job, rules.List[0].Key)

	_, err = rulefile.Parse("rules.yaml", []byte("rules:\n- job: web\n  key: {segment: second}\n"))
	fmt.Println(err)
	// Output:
	// profiles [wildcard {id} of path /users/{id}/]
	// rules.yaml:3: segment: "second" is not allowed: want a whole number
}
