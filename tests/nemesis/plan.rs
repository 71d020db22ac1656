//! The plan that follows from a seed: the servers, and the faults of each phase. The same seed gives the same plan.

use std::fmt;

use crate::random::{Choose, stream};
use rl_testkit::Random;

/// Who a fault strikes, by its role at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Primary,
    /// In a cluster there is only one.
    Replica(usize),
    /// A cluster's other primary.
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Shutdown(Option<&'static str>),
    Kill,
}

/// What can be done to any node by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Save,
    Rewrite {
        preamble: bool,
    },
    /// A child that saves or rewrites is killed.
    KillChild {
        rewrite: bool,
    },
    Config {
        name: &'static str,
        value: &'static str,
    },
    FullMemory {
        evict: bool,
    },
    Pause {
        mode: &'static str,
        ms: u64,
    },
    Freeze,
    Thaw,
    Reload,
    KillLinks,
    FlushAll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    At(Target, Action),
    Restart {
        target: Target,
        stop: Stop,
        down_ms: u64,
    },
    /// REPLICAOF NO ONE on a replica; the old primary and the other replica then follow it.
    Promote {
        replica: usize,
        lag_ms: u64,
    },
    Failover {
        replica: usize,
        force: bool,
    },
    /// A replica follows another node.
    Repoint {
        replica: usize,
        to: Target,
    },
    /// A replica is on its own for a while.
    Detach {
        replica: usize,
        ms: u64,
    },
    LoadModule,
    /// A slot moves to the other primary, key by key; perhaps one of the two restarts meanwhile.
    Migrate {
        tag: usize,
        restart: Option<Target>,
    },
    /// The same by the server itself, where it can.
    MigrateWhole {
        tag: usize,
    },
    ClusterFailover {
        force: bool,
    },
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Two primaries and a replica, instead of a primary and two replicas.
    pub cluster: bool,
    /// Whether faults may lose what was acknowledged: where they may not, calls are counted.
    pub lossless: bool,
    pub aof: [bool; 3],
    pub preamble: bool,
    pub fsync: &'static str,
    pub save: &'static str,
    pub io_threads: u8,
    pub chained: bool,
    /// The module is loaded at run time into the primary.
    pub bare_primary: bool,
    pub policies_file: bool,
    pub audit_stream: bool,
    pub throttle: bool,
    pub diskless_load: &'static str,
    pub diskless_sync: &'static str,
    pub backlog: &'static str,
    pub dual_channel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Each after so many milliseconds of traffic.
    pub faults: Vec<(u64, Fault)>,
    pub connections: usize,
    /// A replica obeys its own maxmemory, and is full. It then refuses some of what its primary sends, by the
    /// server's rules: native commands that need memory, and whatever comes in a transaction. So each
    /// call has one effect of ours, on keys that do not expire meanwhile.
    pub narrow: bool,
    /// At the end, a restart that must restore everything.
    pub restart: Option<(Target, Stop)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub setup: Setup,
    pub phases: Vec<Phase>,
}

const PHASES: u64 = 5;

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut random = stream(seed, 1);
        let setup = Setup::draw(&mut random);
        let phases = (0..PHASES)
            .map(|number| Phase::draw(&mut random, &setup, number))
            .collect();
        Self { setup, phases }
    }
}

impl Setup {
    fn draw(random: &mut Random) -> Self {
        let cluster = random.once_in(4);
        let lossless = cluster && random.once_in(2);
        let aof = [0; 3].map(|_| random.once_in(2));
        Self {
            cluster,
            lossless,
            // Whoever leads may be killed.
            aof: if lossless { [aof[0]; 3] } else { aof },
            preamble: random.once_in(2),
            fsync: random.one_of(&["always", "everysec"]),
            save: random.one_of(&["", "3600 1", "1 1"]),
            io_threads: random.one_of(&[1, 4]),
            chained: random.once_in(2),
            bare_primary: random.once_in(5) && !cluster,
            policies_file: random.once_in(3),
            audit_stream: random.once_in(3) && !cluster,
            throttle: random.once_in(2),
            diskless_load: random.one_of(&["disabled", "swapdb"]),
            diskless_sync: random.one_of(&["yes", "no"]),
            backlog: random.one_of(&["16kb", "1mb", "10mb"]),
            dual_channel: random.once_in(2),
        }
    }
}

impl Phase {
    fn draw(random: &mut Random, setup: &Setup, number: u64) -> Self {
        let narrow = !setup.cluster && !setup.audit_stream && random.once_in(6);
        let mut faults = Vec::new();
        if setup.bare_primary && number == 1 {
            faults.push((random.between(50, 500), Fault::LoadModule));
        }
        if narrow {
            let action = Action::Config {
                name: "replica-ignore-maxmemory",
                value: "no",
            };
            let replica = Target::Replica(random.below(2) as usize);
            faults.push((0, Fault::At(replica, action)));
            let full = Action::FullMemory { evict: false };
            faults.push((random.between(0, 300), Fault::At(replica, full)));
        }
        for _ in 0..random.between(2, 5) {
            let delay = random.between(20, 500);
            let fault = match setup.cluster {
                true => Fault::draw_for_cluster(random, setup),
                false => Fault::draw(random, narrow),
            };
            // Nobody replicates our states to a node without the module.
            let promotes = matches!(fault, Fault::Promote { .. } | Fault::Failover { .. });
            let fault = match setup.bare_primary && number == 0 && promotes {
                true => Fault::Wait,
                false => fault,
            };
            faults.push((delay, fault));
        }
        faults.push((random.between(100, 800), Fault::Wait));
        let restart = (random.below(2) == 0).then(|| (target(random, setup.cluster), stop(random)));
        Self {
            faults,
            connections: random.between(2, 5) as usize,
            narrow,
            restart,
        }
    }
}

fn target(random: &mut Random, cluster: bool) -> Target {
    let second = if cluster {
        Target::Second
    } else {
        Target::Replica(1)
    };
    match random.below(5) {
        0 => Target::Replica(0),
        1 => second,
        _ => Target::Primary,
    }
}

fn stop(random: &mut Random) -> Stop {
    match random.below(4) {
        0 => Stop::Shutdown(None),
        1 => Stop::Shutdown(Some("SAVE")),
        2 => Stop::Shutdown(Some("NOSAVE")),
        _ => Stop::Kill,
    }
}

impl Action {
    fn draw(random: &mut Random) -> Self {
        match random.below(16) {
            0 | 1 => Self::Save,
            2 | 3 => Self::Rewrite {
                preamble: random.once_in(2),
            },
            4 | 5 => Self::KillChild {
                rewrite: random.once_in(2),
            },
            6..=9 => {
                let (name, value) = random.one_of(&[
                    ("appendonly", "yes"),
                    ("appendonly", "no"),
                    ("min-replicas-to-write", "1"),
                    ("min-replicas-to-write", "3"),
                    ("min-replicas-to-write", "0"),
                    ("save", "1 1"),
                    ("save", "3600 1"),
                    ("save", ""),
                    ("aof-use-rdb-preamble", "yes"),
                    ("aof-use-rdb-preamble", "no"),
                    // At run time where the server can.
                    ("io-threads", "4"),
                    ("io-threads", "1"),
                ]);
                Self::Config { name, value }
            }
            10 => Self::FullMemory { evict: false },
            11 | 12 => Self::Pause {
                mode: random.one_of(&["WRITE", "ALL"]),
                ms: random.between(50, 1500),
            },
            13 => Self::Reload,
            _ => Self::KillLinks,
        }
    }
}

impl Fault {
    fn draw(random: &mut Random, narrow: bool) -> Self {
        let replica = random.below(2) as usize;
        let target = target(random, false);
        match random.below(30) {
            0..=4 => Self::Restart {
                target,
                stop: stop(random),
                down_ms: random.one_of(&[0, 0, 100, 1000]),
            },
            5 => Self::Promote {
                replica,
                lag_ms: random.one_of(&[0, 50, 300]),
            },
            6 | 7 => Self::Failover {
                replica,
                force: random.once_in(2),
            },
            8 => Self::Repoint {
                replica,
                to: random.one_of(&[Target::Primary, Target::Replica(1 - replica)]),
            },
            9 => Self::Detach {
                replica,
                ms: random.between(10, 500),
            },
            10 if !narrow => Self::At(Target::Primary, Action::FullMemory { evict: true }),
            11 => Self::At(Target::Replica(replica), Action::Freeze),
            12 => Self::At(Target::Replica(replica), Action::Thaw),
            13 if random.once_in(4) => Self::At(Target::Primary, Action::FlushAll),
            14..=27 => Self::At(target, Action::draw(random)),
            _ => Self::Wait,
        }
    }

    fn draw_for_cluster(random: &mut Random, setup: &Setup) -> Self {
        let target = target(random, true);
        let tag = random.below(TAGS as u64) as usize;
        match random.below(20) {
            0..=6 => Self::Migrate {
                tag,
                restart: random.one_of(&[None, None, Some(Target::Primary), Some(Target::Second)]),
            },
            7 => Self::MigrateWhole { tag },
            8..=10 => {
                let aof = setup.aof[0] && setup.fsync == "always";
                let kept = if aof {
                    Stop::Kill
                } else {
                    Stop::Shutdown(Some("SAVE"))
                };
                let any = stop(random);
                Self::Restart {
                    target,
                    stop: if setup.lossless { kept } else { any },
                    down_ms: random.one_of(&[0, 100, 500]),
                }
            }
            11 | 12 => Self::ClusterFailover {
                force: random.once_in(3) && !setup.lossless,
            },
            13 => Self::At(Target::Replica(0), Action::Freeze),
            14 => Self::At(Target::Replica(0), Action::Thaw),
            15..=18 => match Action::draw(random) {
                Action::Config {
                    name: "appendonly", ..
                } if setup.lossless => Self::Wait,
                action => Self::At(target, action),
            },
            _ => Self::Wait,
        }
    }
}

impl Fault {
    /// The node that it is done to, if it is one.
    pub fn target(&self) -> Option<Target> {
        match *self {
            Self::At(target, _) | Self::Restart { target, .. } => Some(target),
            Self::Promote { replica, .. }
            | Self::Failover { replica, .. }
            | Self::Repoint { replica, .. }
            | Self::Detach { replica, .. } => Some(Target::Replica(replica)),
            Self::ClusterFailover { .. } => Some(Target::Replica(0)),
            _ => None,
        }
    }
}

/// How many hash tags a cluster's keys have, each with a slot of its own.
pub const TAGS: usize = 6;

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Primary => write!(f, "primary"),
            Self::Replica(number) => write!(f, "replica {}", number + 1),
            Self::Second => write!(f, "second primary"),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Shutdown(how) => write!(f, "SHUTDOWN {}", how.unwrap_or_default()),
            Self::Kill => write!(f, "kill -9"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Save => write!(f, "BGSAVE"),
            Self::Rewrite { preamble } => {
                let preamble = if *preamble { "with" } else { "without" };
                write!(f, "BGREWRITEAOF {preamble} preamble")
            }
            Self::KillChild { rewrite } => {
                let what = if *rewrite { "BGREWRITEAOF" } else { "BGSAVE" };
                write!(f, "{what}, and its child is killed")
            }
            Self::Config { name, value } => write!(f, "CONFIG SET {name} \"{value}\""),
            Self::FullMemory { evict } => {
                let policy = if *evict {
                    "allkeys-random"
                } else {
                    "noeviction"
                };
                write!(f, "memory full, {policy}")
            }
            Self::Pause { mode, ms } => write!(f, "CLIENT PAUSE {ms} {mode}"),
            Self::Freeze => write!(f, "SIGSTOP"),
            Self::Thaw => write!(f, "SIGCONT"),
            Self::Reload => write!(f, "DEBUG RELOAD"),
            Self::KillLinks => write!(f, "CLIENT KILL TYPE replica"),
            Self::FlushAll => write!(f, "FLUSHALL"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::At(target, action) => write!(f, "{target}: {action}"),
            Self::Restart {
                target,
                stop,
                down_ms,
            } => write!(f, "{target}: {stop}, start again after {down_ms} ms"),
            Self::Promote { replica, lag_ms } => write!(
                f,
                "replica {}: REPLICAOF NO ONE, the others follow it after {lag_ms} ms",
                replica + 1
            ),
            Self::Failover { replica, force } => {
                let force = if *force { " FORCE" } else { "" };
                write!(
                    f,
                    "replica {}: the primary gets FAILOVER TO it{force}",
                    replica + 1
                )
            }
            Self::Repoint { replica, to } => {
                write!(f, "replica {}: REPLICAOF {to}", replica + 1)
            }
            Self::Detach { replica, ms } => write!(
                f,
                "replica {}: REPLICAOF NO ONE, and back after {ms} ms",
                replica + 1
            ),
            Self::LoadModule => write!(f, "primary: MODULE LOAD"),
            Self::Migrate { tag, restart } => {
                write!(f, "the slot of {{t{tag}}} moves key by key")?;
                match restart {
                    Some(target) => write!(f, "; meanwhile the {target} restarts"),
                    None => Ok(()),
                }
            }
            Self::MigrateWhole { tag } => write!(f, "CLUSTER MIGRATESLOTS, the slot of {{t{tag}}}"),
            Self::ClusterFailover { force } => {
                let force = if *force { " FORCE" } else { "" };
                write!(f, "replica: CLUSTER FAILOVER{force}")
            }
            Self::Wait => write!(f, "traffic only"),
        }
    }
}
