//! Random commands of every kind, on keys that live for moments and keys that live for hours.

use crate::checks::{is_exact, now_ms};
use crate::random::Choose;
use rl_testkit::Random;

pub type Words = Vec<String>;

/// Where keys are: several databases, or the slots of a cluster.
#[derive(Clone, Copy)]
pub struct Space {
    pub databases: u64,
    /// How many hash tags there are; 0 for none.
    pub tags: u64,
    /// See [`crate::plan::Phase::narrow`].
    pub narrow: bool,
    pub throttle: bool,
}

const ALGORITHMS: [&str; 6] = ["slide", "bucket", "fixed", "exact", "leak", "lease"];
const POLICIES: u64 = 6;

/// Keys that calls of policies use, so that the overrides of each can be compared.
pub fn policy_keys(tag: &str) -> impl Iterator<Item = String> {
    ["short", "long"]
        .into_iter()
        .flat_map(move |life| (0..KEYS).map(move |n| format!("{tag}policy:{life}:{n}")))
}

const KEYS: u64 = 10;

/// A policy that is always there; see [`guard`].
pub const GUARD_POLICY: &str = "\"guard\":{\"limits\":[\"SLIDE 1000000 1h\"]}";

/// A call on a key that is blocked from the start to the end.
pub fn guard(tag: &str) -> Words {
    words(&format!("RL.CHECK {tag}blocked guard 1"))
}

/// A call that is always allowed, so that the units on its key are as many as were allowed.
pub fn count(tag: &str, cost: u64) -> Words {
    words(&format!(
        "RL.FIXED {tag}counted 1125899906842624 3650d {cost}"
    ))
}

/// One limit: its key, and the words behind the key.
struct Spec {
    key: String,
    words: Words,
}

/// Keys and specs in turn; options stand at the start of the first spec.
fn multi(command: &str, specs: Vec<Spec>, option: Option<&str>) -> Words {
    let mut words = vec![command.to_owned()];
    for (number, spec) in specs.into_iter().enumerate() {
        words.push(spec.key);
        let option = option.filter(|_| number == 0);
        let text = spec.words.join(" ");
        words.push(option.map_or(text.clone(), |option| format!("{option} {text}")));
    }
    words
}

fn peek(spec: Spec) -> Words {
    vec!["RL.PEEK".to_owned(), spec.key, spec.words.join(" ")]
}

fn words(line: &str) -> Words {
    line.split(' ').map(str::to_owned).collect()
}

pub struct Calls<'a> {
    pub random: &'a mut Random,
    pub space: Space,
    /// The hash tag of the calls at hand, or nothing.
    pub tag: String,
}

impl Calls<'_> {
    fn life(&mut self) -> &'static str {
        self.random.one_of(&["short", "long"])
    }

    fn key(&mut self, kind: &str, life: &str) -> String {
        format!("{}{kind}:{life}:{}", self.tag, self.random.below(KEYS))
    }

    fn any_key(&mut self, life: &str) -> String {
        let kind = self.random.one_of(&[
            "slide", "bucket", "fixed", "exact", "leak", "lease", "policy",
        ]);
        self.key(kind, life)
    }

    fn window(&mut self, life: &str) -> String {
        if life == "long" {
            return self.random.one_of(&["1h", "1h", "1d"]).to_owned();
        }
        format!("{}ms", self.random.one_of(&[100, 700, 3000, 3000, 8000]))
    }

    fn limit(&mut self) -> u64 {
        self.random.one_of(&[0, 5, 60, 60, 900, 900, 1 << 50])
    }

    fn cost(&mut self) -> u64 {
        self.random.one_of(&[0, 1, 1, 1, 2, 3, 40])
    }

    /// The words of a limit, without its cost.
    fn rule(&mut self, algorithm: &str, life: &str) -> String {
        let (limit, window) = (self.limit(), self.window(life));
        match algorithm {
            "bucket" | "leak" => {
                let rate = self.random.one_of(&[1, 7, 50]);
                let limit = limit.min(5000);
                format!("{limit} {rate} {window}")
            }
            "exact" => format!("{} {window}", limit.min(900)),
            _ => format!("{limit} {window}"),
        }
    }

    /// What stands behind the key in a one-limit command.
    fn arguments(&mut self, algorithm: &str, life: &str) -> Words {
        let mut line = self.rule(algorithm, life);
        if algorithm == "lease" {
            line += &format!(" holder{}", self.random.below(8));
        }
        line += &format!(" {}", self.cost());
        if algorithm == "slide" && self.random.once_in(3) {
            line += &format!(" PRECISION {}", self.random.one_of(&[2, 3, 10, 60]));
        }
        words(&line)
    }

    fn option(&mut self) -> Option<&'static str> {
        self.random
            .one_of(&[None, None, None, None, Some("PEEK"), Some("FORCE")])
    }

    fn spec(&mut self) -> Spec {
        let life = self.life();
        if self.random.once_in(5) {
            let line = format!("POLICY p{} {}", self.random.below(POLICIES), self.cost());
            return Spec {
                key: self.key("policy", life),
                words: words(&line),
            };
        }
        let algorithm = self.random.one_of(&ALGORITHMS);
        let mut words = vec![algorithm.to_uppercase()];
        words.extend(self.arguments(algorithm, life));
        Spec {
            key: self.key(algorithm, life),
            words,
        }
    }

    fn one_limit(&mut self) -> Words {
        let (algorithm, life) = (self.random.one_of(&ALGORITHMS), self.life());
        // Now and then a key of another kind.
        let kind = match self.random.below(40) {
            0 => self.random.one_of(&ALGORITHMS),
            _ => algorithm,
        };
        let mut words = vec![
            format!("RL.{}", algorithm.to_uppercase()),
            self.key(kind, life),
        ];
        words.extend(self.arguments(algorithm, life));
        words.extend(self.option().map(str::to_owned));
        words
    }

    fn several(&mut self) -> (Words, Vec<String>) {
        let mut specs: Vec<Spec> = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            let spec = self.spec();
            // A key named twice is an error, which is worth a try but not each time.
            if specs.iter().all(|other| other.key != spec.key) || self.random.once_in(20) {
                specs.push(spec);
            }
        }
        if self.random.once_in(5)
            && let Some(last) = specs.last_mut()
        {
            last.words.insert(0, "SHADOW".to_owned());
        }
        let keys = specs.iter().map(|spec| spec.key.clone()).collect();
        let option = self.option();
        let command = self.random.one_of(&["RL.MULTI", "RL.MULTI", "RL.FIRST"]);
        (multi(command, specs, option), keys)
    }

    fn check(&mut self) -> Words {
        let life = self.life();
        let mut line = format!(
            "RL.CHECK {} p{} {}",
            self.key("policy", life),
            self.random.below(POLICIES),
            self.cost()
        );
        if let Some(option) = self.option() {
            line += &format!(" {option}");
        }
        words(&line)
    }

    fn rules(&mut self) -> Vec<String> {
        let count = self.random.one_of(&[1, 1, 2, 3]);
        let mut rules = Vec::new();
        for _ in 0..count {
            let algorithm = self.random.one_of(&ALGORITHMS[..5]);
            let life = self.life();
            let mut rule = format!(
                "{} {}",
                algorithm.to_uppercase(),
                self.rule(algorithm, life)
            );
            if algorithm == "slide" && self.random.once_in(4) {
                rule += " PRECISION 5";
            }
            if self.random.once_in(5) {
                rule += " COST 2";
            }
            rules.push(rule);
        }
        rules
    }

    fn policy_set(&mut self) -> Words {
        let name = self.random.below(POLICIES);
        let mut line = format!("RL.POLICY SET p{name} {}", self.rules().join(" "));
        if self.random.once_in(5) {
            line += " SHADOW";
        }
        if self.random.once_in(5) {
            line += &format!(" NOTE note-{}", self.random.below(100));
        }
        words(&line)
    }

    /// Changes that every primary of a cluster needs.
    pub fn policy_change(&mut self) -> Words {
        match self.random.below(10) {
            0 => words(&format!("RL.POLICY DEL p{}", self.random.below(POLICIES))),
            1 => vec![
                "RL.POLICY".to_owned(),
                "LOAD".to_owned(),
                self.policies_json(),
            ],
            _ => self.policy_set(),
        }
    }

    pub fn policies_json(&mut self) -> String {
        let mut policies = vec![GUARD_POLICY.to_owned()];
        for name in 0..POLICIES {
            if self.random.once_in(4) {
                continue;
            }
            let limits: Vec<String> = self
                .rules()
                .iter()
                .map(|rule| format!("{rule:?}"))
                .collect();
            policies.push(format!("\"p{name}\":{{\"limits\":[{}]}}", limits.join(",")));
        }
        format!("{{\"policies\":{{{}}}}}", policies.join(","))
    }

    fn override_change(&mut self) -> Words {
        let life = self.life();
        let key = self.key("policy", life);
        let policy = self.random.below(POLICIES);
        if self.random.once_in(4) {
            return words(&format!("RL.OVERRIDE DEL {key} p{policy}"));
        }
        let what = match self.random.below(4) {
            0 => "BLOCK".to_owned(),
            1 => "ALLOW".to_owned(),
            2 => format!(
                "SCALE {} {}",
                self.random.between(1, 9),
                self.random.between(1, 9)
            ),
            _ => self.rules().join(" "),
        };
        let ends = self
            .random
            .one_of(&["", "", " EX 300ms", " EX 5s", " EX 1h"]);
        words(&format!("RL.OVERRIDE SET {key} p{policy} {what}{ends}"))
    }

    fn give_back(&mut self) -> Words {
        let life = self.life();
        if self.random.once_in(2) {
            let key = self.key("lease", life);
            return words(&format!("RL.RELEASE {key} holder{}", self.random.below(8)));
        }
        let key = self.any_key(life);
        words(&format!(
            "RL.REFUND {key} {}",
            self.random.one_of(&[1, 1, 3, 50])
        ))
    }

    /// For replicas as well.
    pub fn read(&mut self) -> Words {
        let life = self.life();
        let key = self.any_key(life);
        let policy_key = self.key("policy", life);
        let policy = self.random.below(POLICIES);
        match self.random.below(9) {
            0..=2 => {
                let spec = self.spec();
                peek(spec)
            }
            3 => words(&format!("RL.INSPECT {key}")),
            4 => words(&format!("RL.OVERRIDE GET {policy_key}")),
            5 => words(&format!("RL.POLICY GET p{policy}")),
            6 => words(self.random.one_of(&["RL.POLICY LIST", "RL.POLICY DUMP"])),
            7 => words(
                self.random
                    .one_of(&["RL.STATS", "RL.TOP", "RL.TOP BY denials", "INFO rl"]),
            ),
            _ => words(
                self.random
                    .one_of(&["RL.AUDIT LEN", "RL.AUDIT GET 5", "RL.AUDIT RESET"]),
            ),
        }
    }

    /// The server's own commands, on our keys.
    fn native(&mut self) -> Words {
        let life = self.life();
        let kind = self
            .random
            .one_of(&["slide", "bucket", "exact", "lease", "policy"]);
        let (key, other) = (self.key(kind, life), self.key(kind, life));
        let databases = self.space.databases;
        let line = match self.random.below(14) {
            0 | 1 => format!("RENAME {key} {other}"),
            2 | 3 if databases > 1 => {
                format!(
                    "COPY {key} {other} DB {} REPLACE",
                    self.random.below(databases)
                )
            }
            2 | 3 => format!("COPY {key} {other} REPLACE"),
            // A key that lives long: a replica takes one that is due for there still.
            4 | 5 if databases > 1 => {
                let key = self.key(kind, "long");
                format!("MOVE {key} {}", self.random.below(databases))
            }
            6 => format!("PERSIST {key}"),
            7 | 8 => {
                let ms = if life == "long" { 7_200_000 } else { 400 };
                let ms = self.random.between(ms / 2, 4 * ms);
                match is_exact() {
                    true => format!("PEXPIRE {key} {ms}"),
                    false => format!("PEXPIREAT {key} {}", now_ms() as u64 + ms),
                }
            }
            9 | 10 => format!("DEL {key}"),
            11 if self.random.once_in(10) && databases > 1 => {
                let (one, other) = (self.random.below(databases), self.random.below(databases));
                format!("SWAPDB {one} {other}")
            }
            12 => format!("SET {} text PX 900", self.key(kind, "short")),
            _ => format!("UNLINK {key}"),
        };
        words(&line)
    }

    /// What must be refused, and must change nothing.
    fn invalid(&mut self) -> Words {
        let life = self.life();
        let key = self.any_key(life);
        let line = self.random.one_of(&[
            "RL.SLIDE KEY",
            "RL.SLIDE KEY -1 1h",
            "RL.SLIDE KEY 10 0",
            "RL.SLIDE KEY 10 1h 1 PRECISION 1000",
            "RL.BUCKET KEY 10 0 1h",
            "RL.EXACT KEY 10 1h x",
            "RL.CHECK KEY no-such-policy",
            "RL.MULTI KEY NONSENSE",
            "RL.SLIDE KEY 10 1h 1 TIMES 0",
            "RL.LEASE KEY 10 1h",
            "RL.LOAD KEY 99999999999999 garbage",
            "RL.POLICY SET p1 NONSENSE 1 2",
            "RL.POLICY LOAD {",
            "RL.OVERRIDE SET KEY p1 SCALE 0 0",
            "RL.NONSENSE KEY",
        ]);
        words(&line.replace("KEY", &key))
    }

    pub fn throttle(&mut self) -> Words {
        let life = self.life();
        let key = self.key("bucket", life);
        let period = if life == "long" { 3600 } else { 1 };
        words(&format!("CL.THROTTLE {key} 20 30 {period} {}", self.cost()))
    }

    /// A call that writes, or would.
    pub fn write(&mut self) -> Words {
        if self.space.narrow {
            return self.narrow();
        }
        match self.random.below(100) {
            0..=44 => self.one_limit(),
            45..=59 => self.several().0,
            60..=73 => self.check(),
            74..=81 => self.give_back(),
            82 | 83 => self.override_change(),
            84 if self.space.tags == 0 => self.policy_change(),
            85..=92 => self.native(),
            93 => self.invalid(),
            94 if self.space.throttle => self.throttle(),
            _ => self.read(),
        }
    }

    /// A call with one effect at most, that a replica never refuses.
    fn narrow(&mut self) -> Words {
        let algorithm = self.random.one_of(&ALGORITHMS);
        let key = self.key(algorithm, "long");
        let holder = self.random.below(8);
        match self.random.below(10) {
            0 if algorithm == "lease" => words(&format!("RL.RELEASE {key} holder{holder}")),
            0 => words(&format!("RL.REFUND {key} 2")),
            1 => words(&format!("DEL {key}")),
            2 => words(&format!("PERSIST {key}")),
            3 => self.read(),
            _ => {
                let mut words = vec![format!("RL.{}", algorithm.to_uppercase()), key];
                words.extend(self.arguments(algorithm, "long"));
                words
            }
        }
    }

    /// Several calls as one script, and the keys that it uses.
    pub fn script(&mut self) -> (String, Vec<String>) {
        let (mut script, mut all_keys) = (String::new(), Vec::new());
        for _ in 0..self.random.between(1, 4) {
            let (call, keys) = match self.random.below(4) {
                0 => self.several(),
                1 => with_its_key(self.check()),
                2 => with_its_key(self.give_back()),
                _ => with_its_key(self.one_limit()),
            };
            let call: Vec<String> = call.iter().map(|word| format!("{word:?}")).collect();
            script += &format!("redis.pcall({})\n", call.join(","));
            all_keys.extend(keys);
        }
        (script + "return 1", all_keys)
    }
}

fn with_its_key(words: Words) -> (Words, Vec<String>) {
    let key = words[1].clone();
    (words, vec![key])
}
