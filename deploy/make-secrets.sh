#!/bin/sh
# Makes the secrets of compose.yaml: a key with which Prometheus reads /metrics, and the password of Grafana's admin.
# The files are readable by all users within the folder `secrets`, which only you can enter: the containers run as
# other users, and see the files alone.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
if [ ! -s secrets/metrics.key ]; then
    docker compose run --rm --no-deps -T plait keys add /var/lib/plait/keys.json prometheus --scope metrics > secrets/metrics.key
fi
if [ ! -s secrets/grafana.password ]; then
    python3 -c 'import secrets; print(secrets.token_urlsafe(24), end="")' > secrets/grafana.password
fi
chmod 644 secrets/metrics.key secrets/grafana.password
echo "secrets/metrics.key and secrets/grafana.password are ready"
