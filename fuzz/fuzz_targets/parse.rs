//! Any words are parsed or refused; what is parsed can be evaluated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rl_core::policy::{self, Rules};
use rl_core::{Algorithm, Error, Mode, syntax};

fuzz_target!(|input: &[u8]| {
    let words: Vec<&[u8]> = input.split(|&byte| byte == b' ' || byte == 0).collect();
    let words = || words.iter().copied();

    for &algorithm in Algorithm::ALL {
        if let Ok((spec, _)) = syntax::one_limit_args(algorithm, &mut words()) {
            let outcome = spec.limit.evaluate(None, 1 << 50, spec.cost, Mode::Check);
            let decision = outcome.map(|outcome| outcome.decision);
            assert!(decision.is_ok_and(|it| it.allowed == (spec.cost <= it.limit)));
        }
    }

    // Arguments end with a NUL, so that specs have spaces.
    let args: Vec<&[u8]> = input.split(|&byte| byte == 0).collect();
    let mut keys = Vec::new();
    let result = syntax::multi_args(args.iter().copied(), |position, key, key_spec| {
        assert_eq!(key, args[position]);
        keys.push(position);
        evaluate(key_spec)
    });
    if result.is_ok() {
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

fn evaluate(key_spec: syntax::KeySpec) -> Result<(), Error> {
    match key_spec.source {
        syntax::LimitSource::Spec(spec) => {
            let outcome = spec.limit.evaluate(None, 0, spec.cost, Mode::Force);
            outcome.map(|_| ())
        }
        syntax::LimitSource::Policy { .. } => Ok(()),
    }
}
