#!/usr/bin/env bash
# `make deploy-check`: lints and renders what is in this folder, each with its own tool. What has no tool here is
# skipped, and named. TOOLS is where Go's tools are installed; docs/install.md says where each comes from.
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
TOOLS=${TOOLS:-$(go env GOPATH 2>/dev/null)/bin}
PATH="$(dirname "$(command -v "$PYTHON")"):$TOOLS:$PATH"
KUBERNETES=1.31.0
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
passed=0 failed=0 skipped=0

check() { # name, tool, command...
    local name=$1 tool=$2
    shift 2
    if ! command -v "$tool" >/dev/null; then
        echo "skipped  $name: there is no $tool"
        skipped=$((skipped + 1))
    elif "$@" >"$made/log" 2>&1; then
        echo "passed   $name"
        passed=$((passed + 1))
    else
        echo "FAILED   $name"
        cat "$made/log"
        failed=$((failed + 1))
    fi
}

units() { # the exposure of each unit is at most 2.0
    for unit in systemd/*.service; do
        cp "$unit" "$made"
        systemd-analyze security --offline=true --threshold=20 --no-pager "$made/$(basename "$unit")" || return 1
    done
}

rendered() { # every way that the values lead
    helm lint --strict chart || return 1
    helm template t chart --kube-version "$KUBERNETES" >"$made/default.yaml" || return 1
    helm template t chart --kube-version "$KUBERNETES" --set autoscaling.enabled=false --set memcached.enabled=true --set bodies.enabled=true \
        --set monitoring.enabled=true --set ingress.enabled=false >"$made/other.yaml"
}

schemas() { # helm's output against the schemas of Kubernetes; those of KEDA and of the operator are not among them
    kubernetes-validate --strict --quiet "$made/default.yaml" "$made/other.yaml"
}

prometheus() { # the configuration of compose, with the paths that it has there
    sed "s|/etc/prometheus|$made|" compose/prometheus.yml >"$made/prometheus.yml"
    cp watch/alerts.yml "$made"
    touch "$made/metrics-token"
    promtool check config "$made/prometheus.yml"
}

check "hadolint Dockerfile" hadolint hadolint Dockerfile
check "systemd-analyze security, at most 2.0" systemd-analyze units
check "helm lint, helm template" helm rendered
check "the chart against the schemas of Kubernetes" kubernetes-validate schemas
check "compose.yaml, read as docker compose does" compose compose -no-interpolation compose/compose.yaml
check "nginx -t" nginx "$PYTHON" compose/try_nginx.py
check "promtool check config, check rules" promtool prometheus
check "promtool test rules" promtool promtool test rules watch/alerts_test.yml
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
