//! `rl exporter`, scraped by a real Prometheus; the dashboard and the alerts use metrics that exist.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use rl_testkit::{Cluster, Server, TempDir, ask, eventually, root, try_ask};
use rstest::rstest;
use serde_json::Value;

use crate::support::command;

/// A process that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the exporter, and returns the address that it listens on.
fn start_exporter(url: &str) -> (Running, String) {
    let mut child = command(url, &["exporter", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("rl: http://")
        .and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    // Keep reading, so that it can keep writing.
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    (Running(child), address)
}

/// The status line and the body of a response.
fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{reply}"));
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn scrape(address: &str) -> String {
    let (status, body) = get(address, "/metrics");
    assert!(status.contains("200 OK"), "{status}");
    body
}

/// A cluster with some traffic.
fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let mut con = node.connect();
        ask::<()>(&mut con, "RL.POLICY SET free SLIDE 5 1h");
        ask::<()>(&mut con, "RL.POLICY SET trial SLIDE 2 1h SHADOW");
        // Numbers far apart are spread over all nodes; consecutive ones may be on one node.
        for n in (0..30).map(|n| n * 7919) {
            // The node refuses keys of other nodes, and does not count them.
            let _ = try_ask::<()>(
                &mut con,
                &format!("RL.OVERRIDE SET user:{n} free SCALE 2 1 EX 1h"),
            );
            for policy in ["free", "trial"] {
                for _ in 0..12 {
                    let _ = try_ask::<Vec<i64>>(
                        &mut con,
                        &format!("RL.CHECK user:{n}:{policy} {policy}"),
                    );
                }
            }
            let _ = try_ask::<Vec<i64>>(&mut con, &format!("RL.CHECK user:{n}:free free 3 FORCE"));
            let _ = try_ask::<i64>(&mut con, &format!("RL.REFUND user:{n}:free 2"));
            let _ = try_ask::<Vec<i64>>(&mut con, &format!("RL.SLIDE plain:{n} 1 1h"));
        }
    }
    cluster
}

fn stats(node: &Server, policy: &[&str]) -> HashMap<String, f64> {
    node.run("RL.STATS", policy)
}

struct Prometheus {
    address: String,
    _process: Running,
}

impl Prometheus {
    fn start(folder: &TempDir, target: &str) -> Self {
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             scrape_configs: [{{job_name: rl, static_configs: [{{targets: ['{target}']}}]}}]\n\
             rule_files: ['{}']\n",
            root().join("docs/dashboards/alerts.yaml").display()
        );
        let config = folder.write("prometheus.yaml", &config);
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!("127.0.0.1:{port}");
        let log = fs::File::create(folder.path("prometheus.log")).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={config}"))
            .arg(format!("--storage.tsdb.path={}", folder.path("data")))
            .arg(format!("--web.listen-address={address}"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("prometheus is missing: scripts/install-deps prometheus");
        let prometheus = Self {
            address,
            _process: Running(child),
        };
        eventually("Prometheus is up", || {
            TcpStream::connect(&prometheus.address).is_ok()
                && get(&prometheus.address, "/-/ready").0.contains("200")
        });
        prometheus
    }

    /// The result of an instant query: labels and values. Fails if the query is invalid.
    fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (_, body) = get(&self.address, &format!("/api/v1/query?query={encoded}"));
        // An HTTP/1.0 response is not chunked.
        let json: Value =
            serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert_eq!(json["status"], "success", "{query}: {json}");
        let results = json["data"]["result"].as_array().unwrap().iter();
        let number = |value: &Value| value[1].as_str().unwrap().parse().unwrap();
        results
            .map(|result| (result["metric"].clone(), number(&result["value"])))
            .collect()
    }

    fn value(&self, query: &str) -> Option<f64> {
        self.query(query).first().map(|(_, value)| *value)
    }
}

#[rstest]
fn prometheus_sees_what_the_servers_count() {
    let (mut cluster, folder) = (cluster(), TempDir::new());
    let (_exporter, address) = start_exporter(&cluster.url());
    let prometheus = Prometheus::start(&folder, &address);
    eventually("Prometheus has scraped", || {
        prometheus.value("sum(rl_up)") == Some(3.0)
    });

    for node in &cluster.nodes {
        let (label, all) = (node.address(), stats(node, &[]));
        assert!(
            all["denied"] > 0.0
                && all["forced"] > 0.0
                && all["refunded_units"] > 0.0
                && all["shadow_denied"] > 0.0,
            "{all:?}"
        );
        for outcome in ["allowed", "denied", "forced"] {
            let query = format!("rl_checks_total{{node=\"{label}\",outcome=\"{outcome}\"}}");
            assert_eq!(prometheus.value(&query), Some(all[outcome]), "{query}");
            for policy in ["free", "trial"] {
                let query = format!(
                    "rl_policy_checks_total{{node=\"{label}\",policy=\"{policy}\",outcome=\"{outcome}\"}}"
                );
                assert_eq!(
                    prometheus.value(&query),
                    Some(stats(node, &[policy])[outcome]),
                    "{query}"
                );
            }
        }
        for (metric, value) in [
            ("rl_shadow_denied_total", all["shadow_denied"]),
            ("rl_refunded_units_total", all["refunded_units"]),
            ("rl_policies", 2.0),
            (
                "rl_keys_with_overrides",
                node.info_number("rl", "rl_keys_with_overrides") as f64,
            ),
            ("rl_audit_entries", node.run::<f64>("RL.AUDIT", &["LEN"])),
            ("rl_server_replicas", 0.0),
        ] {
            let query = format!("{metric}{{node=\"{label}\"}}");
            assert_eq!(prometheus.value(&query), Some(value), "{query}");
        }
    }
    assert_eq!(prometheus.value("sum(rl_keys_with_overrides)"), Some(30.0));
    assert_eq!(
        prometheus.value("count(count by (value) (count_values(\"value\", rl_policies_hash)))"),
        Some(1.0)
    );

    // Every panel and every alert finds its metrics.
    let exported: HashSet<String> = prometheus
        .query("{__name__=~\"rl_.*\"}")
        .iter()
        .map(|(labels, _)| labels["__name__"].as_str().unwrap().to_owned())
        .collect();
    let page = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    for name in &exported {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/cli.md lacks {name}"
        );
    }
    for panel in panels() {
        let selectors = panel.matches('{').count();
        assert_eq!(
            panel.matches("{instance=\"$instance\"").count(),
            selectors,
            "two clusters would mix: {panel}"
        );
    }
    let expressions = [panels(), alerts()].concat();
    assert!(expressions.len() >= 12, "{expressions:?}");
    for expression in &expressions {
        prometheus.query(
            &expression
                .replace("$instance", &address)
                .replace("$node", ".*")
                .replace("$policy", ".*")
                .replace("$__rate_interval", "1m"),
        );
        let names = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<_> = names.filter(|word| word.starts_with("rl_")).collect();
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(
                exported.contains(name),
                "{name} of {expression} is not exported: {exported:?}"
            );
        }
    }
    assert!(!firing(&prometheus).contains(&"RlNodeDown".to_owned()));

    // A node that is down is reported as such; the scrape does not fail.
    let down = cluster.nodes[1].address();
    cluster.nodes[1].kill();
    let text = scrape(&address);
    assert!(
        text.contains(&format!("rl_up{{node=\"{down}\",role=\"primary\"}} 0\n")),
        "{text}"
    );
    assert!(
        !text.contains(&format!("rl_checks_total{{node=\"{down}\"")),
        "{text}"
    );
    eventually("Prometheus sees it", || {
        prometheus.value(&format!("rl_up{{node=\"{down}\"}}")) == Some(0.0)
            && prometheus.value("up{job=\"rl\"}") == Some(1.0)
    });
    eventually("and would page", || {
        firing(&prometheus).contains(&"RlNodeDown".to_owned())
    });
    // The same if all nodes are down, including that of the given address.
    cluster.nodes[0].kill();
    cluster.nodes[2].kill();
    let text = scrape(&address);
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("rl_up{") && line.ends_with(" 0"))
            .count(),
        3,
        "{text}"
    );
}

/// The alerts that are pending or firing.
fn firing(prometheus: &Prometheus) -> Vec<String> {
    let alerts = prometheus.query("ALERTS");
    alerts
        .iter()
        .map(|(labels, _)| labels["alertname"].as_str().unwrap().to_owned())
        .collect()
}

fn panels() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/dashboards/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect()
}

fn alerts() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/dashboards/alerts.yaml")).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "));
    lines.map(str::to_owned).collect()
}

#[rstest]
fn the_exported_format_and_the_alerts_are_valid() {
    let server = Server::start();
    let _: () = server.run("RL.POLICY", &["SET", "a\"b\\", "SLIDE", "5", "1m"]);
    let (_exporter, address) = start_exporter(&server.url());
    let text = scrape(&address);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&output.stderr)
    );

    let rules = root().join("docs/dashboards/alerts.yaml");
    let output = Command::new("promtool")
        .args(["check", "rules"])
        .arg(rules)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = format!("{} rules found", alerts().len());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains(&found), "{printed}");

    let output = Command::new("promtool")
        .args(["test", "rules"])
        .arg(root().join("docs/dashboards/alerts_test.yaml"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );

    assert!(get(&address, "/elsewhere").0.contains("404"));
    assert!(get(&address, "/").1.contains("/metrics"));
}

#[rstest]
fn late_servers_and_slow_clients_do_not_stop_the_exporter() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (_exporter, address) = start_exporter(&format!("redis://127.0.0.1:{port}"));
    // Clients that connect and send nothing do not delay the others.
    let _silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let text = scrape(&address);
    assert!(
        text.contains(&format!(
            "rl_up{{node=\"127.0.0.1:{port}\",role=\"primary\"}} 0\n"
        )),
        "{text}"
    );
    let taken = command("redis://127.0.0.1:1", &["exporter", "--listen", &address])
        .output()
        .unwrap();
    assert_eq!(taken.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&taken.stderr).contains("--listen"),
        "says what to do"
    );
}
