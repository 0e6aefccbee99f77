#!/usr/bin/env bash
# Walks through who may do what on one machine: an authority, certificates with SPIFFE
# ids, a policy, three teams, refusals, a change of the policy, a renewed certificate and a
# new authority.
# It takes the folder with the programs slicer and slicerctl, needs openssl, and leaves
# nothing behind.
set -euo pipefail
bin=$(cd "${1:?usage: walk.sh FOLDER-WITH-PROGRAMS}" && pwd)
dir=$(mktemp -d)
server= watch=
trap 'for p in $watch $server; do kill "$p" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT
cd "$dir"

say() { printf '\n# %s\n' "$*"; }

# authority NAME makes NAME.pem and NAME.key, which issue uses from then on.
authority() {
	authority=$1
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "/CN=$1" -days 2 -out "$1.pem" \
		-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
}

# issue NAME ID makes NAME.pem and NAME.key with that SPIFFE id.
issue() {
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key.new" -subj "/CN=$1" -out "$1.csr" 2>/dev/null
	openssl x509 -req -in "$1.csr" -CA $authority.pem -CAkey $authority.key -CAcreateserial -days 1 -out "$1.pem.new" \
		-extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=%s\n' "URI:$2,DNS:localhost,IP:127.0.0.1" serverAuth,clientAuth) 2>/dev/null
	mv "$1.key.new" "$1.key"
	mv "$1.pem.new" "$1.pem"
}

# as NAME COMMAND... runs slicerctl with that certificate, and shows what it says.
as() {
	local who=$1
	shift
	printf '%s$ slicerctl %s\n' "$who" "$*"
	"$bin/slicerctl" --server "$at" --tls-ca ca.pem --tls-cert "$who.pem" --tls-key "$who.key" "$@" 2>&1
}

# refused is as for what must be refused.
refused() {
	local out
	if out=$(as "$@"); then
		printf '%s\nthis was to be refused\n' "$out"
		exit 1
	fi
	echo "$out"
	grep -q 'identity spiffe://corp/.* may not' <<<"$out"
}

# until_done COMMAND... tries for 30 seconds.
until_done() {
	for _ in $(seq 150); do
		if "$@" >last 2>&1; then return 0; fi
		sleep 0.2
	done
	cat last
	return 1
}

say "an authority, and a certificate for each"
authority corp
cp corp.pem ca.pem
issue plane spiffe://corp/ns/slicer/server
issue sre spiffe://corp/user/sre/ann
for team in cache search mail; do issue $team spiffe://corp/ns/$team/deployer; done
openssl x509 -in cache.pem -noout -ext subjectAltName,extendedKeyUsage

say "a policy: who is the control plane, who administrates, what holds for each team's jobs"
cat >policy.yaml <<'YAML'
plane: ["spiffe://corp/ns/slicer/**"]
admin: ["spiffe://corp/user/sre/*"]
jobs:
  own: ["spiffe://corp/ns/{job}/task/{task}"]
  watch: ["spiffe://corp/**"]
  configure: ["spiffe://corp/ns/{job}/deployer"]
YAML
cat policy.yaml

say "the control plane with it"
"$bin/slicer" serve --store "pebble://$dir/store" --listen 127.0.0.1:0 --backup-listen 127.0.0.1:0 --http= \
	--tls-ca ca.pem --tls-cert plane.pem --tls-key plane.key --policy policy.yaml 2>log &
server=$!
until_done grep -q msg=serving log
at=$(sed -nE 's/.*msg=serving listen=([^ ]*).*/\1/p' log)

say "each team makes its job, and no other's"
for team in cache search mail; do
	echo "name: $team" >$team.yaml
	until_done as $team job apply -f $team.yaml
	cat last
done
refused search job apply -f cache.yaml
refused mail inspect cache
as cache access check cache --verb configure
as sre access check cache --verb own --as spiffe://corp/ns/cache/task/t-1 --task t-1

say "a job says itself who may look and who may give orders"
cat >cache.yaml <<'YAML'
name: cache
access:
  own: ["spiffe://corp/ns/cache/task/{task}"]
  watch: ["spiffe://corp/**"]
  read: ["spiffe://corp/ns/search/deployer"]
  order: ["spiffe://corp/ns/cache/oncall"]
  configure: ["spiffe://corp/ns/cache/deployer"]
YAML
as cache job apply -f cache.yaml
as search job get cache | tail -n 6
refused search freeze cache --reason 'not mine'

say "who did what"
as sre history cache
grep -m3 audit=refused log

say "the policy changes: ann leaves, bob comes; it is read within two seconds"
issue bob spiffe://corp/user/oncall/bob
refused bob history cache
sed 's|spiffe://corp/user/sre/\*|spiffe://corp/user/oncall/*|' policy.yaml >next
mv next policy.yaml
until_done as bob history cache
cat last
refused sre history cache

say "a bad policy leaves the old one in force"
echo 'admins: [x]' >next
mv next policy.yaml
until_done grep -q 'the policy in force stays' log
grep 'the policy in force stays' log
as bob job list

say "the server's certificate is renewed under it"
serial() { openssl s_client -connect "$at" -CAfile ca.pem -cert bob.pem -key bob.key -alpn h2 </dev/null 2>/dev/null | openssl x509 -noout -serial; }
before=$(serial)
issue plane spiffe://corp/ns/slicer/server
kill -HUP "$server"
renewed() { [ "$(serial)" != "$before" ]; }
until_done renewed
echo "$before, then $(serial)"
as bob job list

say "the authority is replaced while calls are made, and a watch goes on"
# calls makes one call after the other until there is a file stop.
calls() {
	local made=0 failed=0
	while [ ! -e stop ]; do
		made=$((made + 1))
		as "$(cat caller)" inspect cache >call 2>&1 || {
			failed=$((failed + 1))
			cat call
		}
	done
	echo "$made calls, $failed failed" >made
	[ $failed = 0 ]
}
# trust FILES... are the authorities from now on, for all.
trust() {
	cat "$@" >next
	mv next ca.pem
	kill -HUP "$server"
}
shut_out() { ! as bob job list; }
echo bob >caller
calls &
load=$!
"$bin/slicerctl" --server "$at" --tls-ca ca.pem --tls-cert bob.pem --tls-key bob.key watch cache >watched &
watch=$!
authority corp-2
trust corp.pem corp-2.pem
issue bob-2 spiffe://corp/user/oncall/bob
until_done as bob-2 job list
echo bob-2 >next
mv next caller
before=$(serial)
issue plane spiffe://corp/ns/slicer/server
kill -HUP "$server"
until_done renewed
trust corp-2.pem
until_done shut_out
as bob-2 job list
touch stop
wait $load || { echo "calls failed"; exit 1; }
kill $watch # which fails where it has ended
cat made

say "done"
