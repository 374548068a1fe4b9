"""The Grafana dashboard's source: `content` says what it shows, `drawing` how; `make manifests` writes the JSON."""
