#!/bin/sh
# Makes the namespace and registers the search attributes that Longhaul's runs carry. May be repeated. The connection
# comes as TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE, the days that closed runs are kept as RETENTION.
set -eu

: "${TEMPORAL_ADDRESS:?}" "${TEMPORAL_NAMESPACE:?}" "${RETENTION:?}"
attempts=${ATTEMPTS:-60}

again() {
    attempts=$((attempts - 1))
    if [ "$attempts" -le 0 ]; then
        echo "giving up: $1" >&2
        exit 1
    fi
    sleep 1
}

until temporal operator cluster health >/dev/null 2>&1; do
    again "Temporal at $TEMPORAL_ADDRESS is not healthy"
done

until temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; do
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION" ||
        again "namespace $TEMPORAL_NAMESPACE cannot be made"
done

# A new namespace is unknown to parts of the server for some ten seconds.
until temporal operator search-attribute list --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; do
    again "namespace $TEMPORAL_NAMESPACE does not answer"
done

registered() {
    temporal operator search-attribute list --namespace "$TEMPORAL_NAMESPACE" | grep -Eq "^ *$1 +$2 *$"
}

while read -r name type; do
    until registered "$name" "$type"; do
        temporal operator search-attribute create --namespace "$TEMPORAL_NAMESPACE" --name "$name" --type "$type" ||
            again "search attribute $name cannot be registered as $type"
    done
    echo "search attribute $name: $type"
done <<END
LonghaulRun Keyword
LonghaulTenant Keyword
LonghaulPhase Keyword
LonghaulState Keyword
END

echo "namespace $TEMPORAL_NAMESPACE is ready"
