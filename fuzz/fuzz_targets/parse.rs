//! Any words are parsed or refused; what is parsed can be evaluated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rl_core::policy::{self, Rules};
use rl_core::reservation::{
    self, Charge, Charges, OpenReservation, ReservedKey, StoredReservation,
};
use rl_core::syntax::{CallFlags, CallOptions, KeySpec, LimitSource};
use rl_core::{Algorithm, Error, MAX_COUNT, Mode, RefundRequest, Update, syntax};

const NOW_US: u64 = 1 << 50;

fuzz_target!(|input: &[u8]| {
    let words: Vec<&[u8]> = input.split(|&byte| byte == b' ' || byte == 0).collect();
    let words = || words.iter().copied();

    for &algorithm in Algorithm::ALL {
        if let Ok((spec, options)) = syntax::one_limit_args(algorithm, &mut words()) {
            check(options, spec.cost);
            let outcome = spec.limit.evaluate(None, NOW_US, spec.cost, Mode::Check);
            let decision = outcome.map(|outcome| outcome.decision);
            assert!(decision.is_ok_and(|it| it.allowed == (spec.cost <= it.limit)));
            let brief = decision.map(|it| it.brief(algorithm.reports_delay()));
            assert!(brief.is_ok_and(|brief| (brief < 0) == decision.is_ok_and(|it| !it.allowed)));
        }
    }
    if let Ok((cost, options)) = syntax::check_args(words()) {
        check(options, cost);
    }
    if let Ok(request) = RefundRequest::parse(words()) {
        assert!(request.units <= MAX_COUNT && request.calls <= MAX_COUNT);
        assert_ne!(request.age_us, Some(0));
    }

    // Arguments end with a NUL, so that specs have spaces.
    let args: Vec<&[u8]> = input.split(|&byte| byte == 0).collect();
    let mut keys = Vec::new();
    let mut specs = Vec::new();
    let result = syntax::multi_args(args.iter().copied(), |position, key, key_spec| {
        assert_eq!(key, args[position]);
        keys.push(position);
        specs.push(key_spec);
        evaluate(key_spec)
    });
    if let Ok(options) = result {
        for spec in &specs {
            check(options, cost(spec));
        }
        reserve(&args, &specs, options);
        let every_second: Vec<usize> = (0..args.len()).step_by(2).collect();
        assert_eq!(
            keys, every_second,
            "the server finds the same keys by position"
        );
    }
    for spec in args {
        if let Ok(key_spec) = syntax::peek_spec(spec) {
            let call = syntax::multi_args([b"k", spec].into_iter(), |_, _, same| {
                assert_eq!(same, key_spec, "RL.PEEK and RL.MULTI read a spec alike");
                evaluate(same)
            });
            assert!(call.is_ok());
        }
    }

    if let Ok(rules) = Rules::parse(&mut words()) {
        let text = rules.to_string();
        let again = Rules::parse(&mut text.split(' ').map(str::as_bytes));
        assert_eq!(
            again,
            Ok(rules),
            "canonical text is read as what it was written from"
        );
    }
    if let Ok(policies) = policy::from_json(input) {
        let named = || policies.iter().map(|(name, policy)| (&**name, policy));
        let again = policy::from_json(policy::to_json(named()).as_bytes());
        assert_eq!(
            again.as_deref(),
            Ok(&policies[..]),
            "a dump is loaded as what it was"
        );
    }
});

/// Options that are accepted can be carried out.
fn check(options: CallOptions, cost: u64) {
    let flags = options.flags();
    assert!(!flags.contains(CallFlags::PEEK | CallFlags::FORCE));
    assert!(options.times() >= 1 && options.times() <= MAX_COUNT);
    let total = cost.checked_mul(options.times());
    assert!(total.is_some_and(|total| total <= MAX_COUNT));
    if let Some(at_least) = options.at_least() {
        assert!((1..=options.times()).contains(&at_least));
        assert!(!flags.intersects(CallFlags::FORCE | CallFlags::BRIEF));
    }
}

fn cost(key_spec: &KeySpec) -> u64 {
    match key_spec.source {
        LimitSource::Spec(spec) => spec.cost,
        LimitSource::Policy { cost, .. } => cost,
    }
}

/// What RL.RESERVE records can be read again, and so can its specs.
fn reserve(args: &[&[u8]], specs: &[KeySpec], options: CallOptions) {
    let mut open = OpenReservation {
        charged_at_us: NOW_US,
        digest: reservation::digest(args.iter().copied()),
        times: options.times(),
        keys: Default::default(),
    };
    for (pair, key_spec) in args.chunks(2).zip(specs) {
        assert_eq!(syntax::recorded_spec(pair[1]).as_ref(), Ok(key_spec));
        let mut charges = Charges::new();
        if let LimitSource::Spec(spec) = key_spec.source
            && let Ok(outcome) = spec.limit.evaluate(None, NOW_US, spec.cost, Mode::Force)
            && let Some(mut update) = outcome.update
        {
            update.mark_reserved(NOW_US);
            if let Some(state) = Update::into_initial(update) {
                charges = Charge::of_call(&spec.limit, &state, spec.cost);
            }
        }
        open.keys.push(ReservedKey {
            key: pair[0],
            spec: pair[1],
            reserved: Some(cost(key_spec)),
            settled: None,
            charges,
        });
    }
    let stored = StoredReservation::open(&open);
    assert_eq!(StoredReservation::decode_blob(&stored.blob()), Ok(stored));
}

fn evaluate(key_spec: KeySpec) -> Result<(), Error> {
    match key_spec.source {
        LimitSource::Spec(spec) => {
            let outcome = spec.limit.evaluate(None, 0, spec.cost, Mode::Force);
            outcome.map(|_| ())
        }
        LimitSource::Policy { .. } => Ok(()),
    }
}
