#!/bin/sh
# Create the folder for deploy/compose.yaml: the broker's files, and secrets that only their containers can read.
#   deploy/prepare.sh /root/home /srv/hushmote     from a fleet's folder, as root
# Run it again after renewing certificates or rotating keys; passwords and tokens are not changed.
set -eu
umask 077
fleet=${1:?"the fleet's folder"} state=${2:?"the folder to make"}

# The users as which mosquitto, PostgreSQL, Hushmote and Grafana run in their images.
broker=1883 postgres=999 hushmote=10001 grafana=472

mkdir -p "$state/broker/data" "$state/secrets"
chmod 711 "$state" "$state/secrets" # the containers' users can traverse these folders, but not list them
for file in "$fleet"/broker/*; do
    [ -d "$file" ] || install -m 600 "$file" "$state/broker/"
done
chown -R "$broker:$broker" "$state/broker"

give() { # NAME OWNER: the secret is read from standard input
    cat > "$state/secrets/$1.new"
    chmod 400 "$state/secrets/$1.new"
    chown "$2" "$state/secrets/$1.new"
    mv -f "$state/secrets/$1.new" "$state/secrets/$1"
}
random() { # NAME OWNER...: 160 bits, once
    [ -e "$state/secrets/$1" ] || head -c 20 /dev/urandom | od -An -v -tx1 | tr -d ' \n' | give "$1" "$2"
}
login() { # NAME ROLE PASSWORD: write a PostgreSQL password file
    printf 'store:5432:hushmote:%s:%s\n' "$2" "$(cat "$state/secrets/$3")" | give "$1" "$hushmote"
}

give ca.pem "$hushmote" < "$fleet/aggregator/ca.pem"
give aggregator.pem "$hushmote" < "$fleet/aggregator/aggregator_1.pem"
give master.key "$hushmote" < "$fleet/aggregator/master.key"
random postgres_password "$postgres"
random aggregator_password "$postgres"
random page_password "$postgres"
login aggregator.pgpass hushmote aggregator_password
login page.pgpass page page_password
random page.token "$hushmote"
random grafana_password "$grafana"
echo "made $state; the page's token is in secrets/page.token, Grafana's password (user admin) in secrets/grafana_password"
