//! A day of many clients, as an API sees them: people during the day, programs all day, jobs every hour, and a few
//! abusive clients.

use std::f64::consts::TAU;
use std::thread;

use crate::contender::{self, Contender, LIMIT};
use crate::random::Random;
use crate::replay::{self, Counting, Verdict};
use crate::table::{Table, percent};
use crate::traffic::at;

const DAY_S: f64 = 86_400.0;

struct Group {
    name: &'static str,
    clients: u64,
    /// What one client does in a day, in words.
    does: &'static str,
    /// Its calls, in seconds after midnight.
    day: fn(&mut Random) -> Vec<f64>,
}

const GROUPS: [Group; 4] = [
    Group {
        name: "people",
        clients: 2700,
        does: "4 sessions, most of them around 15:00 UTC, of 10 min; a page every 15 s; \
               8 calls per page, 100 ms apart",
        day: person,
    },
    Group {
        name: "programs",
        clients: 240,
        does: "a call every 0.5 s to 60 s (one interval per client, log-uniform), ±10 %",
        day: program,
    },
    Group {
        name: "jobs",
        clients: 45,
        does: "50 to 500 calls on every full hour (one number per client), 20 ms apart",
        day: job,
    },
    Group {
        name: "abusive clients",
        clients: 15,
        does: "4 floods of 15 min, at 3 to 30 times the limit (one rate per client, log-uniform)",
        day: abuser,
    },
];

fn person(random: &mut Random) -> Vec<f64> {
    let mut calls = Vec::new();
    let most = 1.8;
    let mut session_s = random.gap(DAY_S / (4.0 * most));
    while session_s < DAY_S {
        let hour = session_s / 3600.0;
        let awake = 1.0 + 0.8 * ((hour - 9.0) / 24.0 * TAU).sin();
        if random.share() < awake / most {
            let end_s = session_s + random.gap(600.0);
            let mut page_s = session_s;
            while page_s < end_s {
                let mut call_s = page_s;
                for _ in 0..random.geometric(8.0) {
                    calls.push(call_s);
                    call_s += random.gap(0.1);
                }
                page_s += random.gap(15.0);
            }
        }
        session_s += random.gap(DAY_S / (4.0 * most));
    }
    calls
}

fn program(random: &mut Random) -> Vec<f64> {
    let every_s = random.log_between(0.5, 60.0);
    let mut calls = Vec::new();
    let mut call_s = random.between(0.0, every_s);
    while call_s < DAY_S {
        calls.push(call_s);
        call_s += every_s * random.between(0.9, 1.1);
    }
    calls
}

fn job(random: &mut Random) -> Vec<f64> {
    let size = random.between(50.0, 500.0) as u64;
    let mut calls = Vec::new();
    for hour in 0..24 {
        let mut call_s = f64::from(hour) * 3600.0;
        for _ in 0..size {
            call_s += random.gap(0.02);
            calls.push(call_s);
        }
    }
    calls
}

fn abuser(random: &mut Random) -> Vec<f64> {
    let gap_s = 0.6 / random.log_between(3.0, 30.0);
    let mut calls = Vec::new();
    for _ in 0..4 {
        let mut call_s = random.between(0.0, DAY_S);
        let end_s = call_s + 900.0;
        while call_s < end_s {
            calls.push(call_s);
            call_s += random.gap(gap_s);
        }
    }
    calls
}

/// The limits that SLIDE applies to the mix: the more generous, the fewer clients ever come near.
const LIMITS: [u64; 6] = [LIMIT, 150, 200, 300, 500, 1000];

/// The verdicts on the clients of a group.
#[derive(Clone, Default)]
struct Judged {
    by_contender: Vec<Verdict>,
    by_limit: [AtLimit; LIMITS.len()],
}

/// The verdicts on SLIDE with one limit.
#[derive(Clone, Copy, Default)]
struct AtLimit {
    counting_admitted: Verdict,
    counting_all: Verdict,
    clients_denied: u64,
}

impl Judged {
    fn client(calls: &[u64]) -> Self {
        let judge = |contender| replay::one_key(&contender, Counting::Admitted, calls);
        let by_limit = LIMITS.map(|limit| {
            let slide = contender::slide_of(1, limit);
            let counting_admitted = judge(slide);
            AtLimit {
                counting_admitted,
                counting_all: replay::one_key(&slide, Counting::All, calls),
                clients_denied: u64::from(counting_admitted.denied() > 0),
            }
        });
        Self {
            by_contender: contender::all().into_iter().map(judge).collect(),
            by_limit,
        }
    }

    fn add(&mut self, other: &Self) {
        self.by_contender
            .resize(other.by_contender.len(), Verdict::default());
        for (sum, verdict) in self.by_contender.iter_mut().zip(&other.by_contender) {
            sum.add(verdict);
        }
        for (sum, at_limit) in self.by_limit.iter_mut().zip(&other.by_limit) {
            sum.counting_admitted.add(&at_limit.counting_admitted);
            sum.counting_all.add(&at_limit.counting_all);
            sum.clients_denied += at_limit.clients_denied;
        }
    }
}

pub struct Mixed {
    groups: Vec<Judged>,
}

pub fn replay() -> Mixed {
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let groups = GROUPS.iter().enumerate().map(|(index, group)| {
        let work = move |worker: u64| {
            let mut sum = Judged::default();
            for client in (worker..group.clients).step_by(workers as usize) {
                let mut random = Random::new(1_000_000 * (index as u64 + 1) + client);
                let seconds = (group.day)(&mut random);
                let mut calls: Vec<u64> = seconds.into_iter().map(at).collect();
                calls.sort_unstable();
                sum.add(&Judged::client(&calls));
            }
            sum
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers)
                .map(|worker| scope.spawn(move || work(worker)))
                .collect();
            let mut sum = Judged::default();
            for thread in threads {
                sum.add(&thread.join().unwrap());
            }
            sum
        })
    });
    Mixed {
        groups: groups.collect(),
    }
}

impl Mixed {
    fn whole(&self) -> Judged {
        let mut whole = Judged::default();
        for group in &self.groups {
            whole.add(group);
        }
        whole
    }

    pub fn by_contender(&self) -> Vec<(Contender, Verdict)> {
        let verdicts = self.whole().by_contender;
        contender::all().into_iter().zip(verdicts).collect()
    }

    pub fn traffic_table(&self) -> Table {
        let mut table = Table::new(&["", "clients", "what each does in a day", "calls"]);
        for (group, judged) in GROUPS.iter().zip(&self.groups) {
            table.row([
                group.name.into(),
                group.clients.to_string(),
                group.does.into(),
                judged.by_contender[0].calls.to_string(),
            ]);
        }
        table
    }

    pub fn group_table(&self) -> Table {
        let mut table = Table::new(&[
            "SLIDE, 100 per minute",
            "clients ever denied",
            "calls denied",
            "wrongly admitted",
            "wrongly denied",
            "room then",
            "wrong, counting every call",
        ]);
        for (group, judged) in GROUPS.iter().zip(&self.groups) {
            let AtLimit {
                counting_admitted: verdict,
                counting_all: all,
                clients_denied,
            } = judged.by_limit[0];
            table.row([
                group.name.into(),
                format!("{clients_denied} of {}", group.clients),
                percent(verdict.denied(), verdict.calls),
                percent(verdict.wrongly_admitted, verdict.calls),
                percent(verdict.wrongly_denied, verdict.calls),
                verdict.mean_room(),
                percent(all.wrong(), all.calls),
            ]);
        }
        table
    }

    /// Our figures next to the one that is often quoted.
    pub fn quoted_table(&self) -> Table {
        let mut table = Table::new(&[
            "two counters",
            "clients ever denied",
            "calls denied",
            "wrong, counting every call",
            "wrong, counting what is admitted",
        ]);
        let unknown = || "not stated".into();
        table.row([
            "Cloudflare, real traffic".into(),
            unknown(),
            unknown(),
            "0.003 %".into(),
            unknown(),
        ]);
        let clients: u64 = GROUPS.iter().map(|group| group.clients).sum();
        for (limit, at_limit) in LIMITS.iter().zip(self.whole().by_limit) {
            let (ours, all) = (at_limit.counting_admitted, at_limit.counting_all);
            table.row([
                format!("this mix, {limit} per minute"),
                percent(at_limit.clients_denied, clients),
                percent(ours.denied(), ours.calls),
                percent(all.wrong(), all.calls),
                percent(ours.wrong(), ours.calls),
            ]);
        }
        table
    }
}
