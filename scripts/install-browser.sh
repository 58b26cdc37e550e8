#!/bin/sh
# A browser for `make docs-browser`: use the one that is there, or install one.
#
#   sh scripts/install-browser.sh
#
# In this order: $TENFERRO_BROWSER, a Chromium or Chrome on the search path, the package
# `chromium` by apt-get (as root, or by sudo without a question), Playwright's own download.
# The status is 0 only if a browser starts afterwards.
set -eu

starts() {
    "$1" --version >/dev/null 2>&1
}

if [ -n "${TENFERRO_BROWSER-}" ]; then
    starts "$TENFERRO_BROWSER" && exit 0
    echo "TENFERRO_BROWSER names $TENFERRO_BROWSER, which does not start." >&2
    exit 1
fi

for name in chromium chromium-browser google-chrome google-chrome-stable; do
    starts "$name" && exit 0
done

if command -v apt-get >/dev/null; then
    by=
    [ "$(id -u)" -eq 0 ] || by="sudo -n"
    export DEBIAN_FRONTEND=noninteractive
    if $by apt-get update -qq &&
        $by apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; then
        starts chromium && exit 0
    fi
fi

python -m playwright install chromium && exit 0
echo "No browser could be installed. Install Chromium, or name one: TENFERRO_BROWSER=/path" >&2
exit 1
