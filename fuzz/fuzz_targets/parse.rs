//! Any words are parsed or refused; what is parsed can be evaluated.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rl_core::policy::{self, Rules};
use rl_core::{Algorithm, Mode, parse};

fuzz_target!(|input: &[u8]| {
    let words: Vec<&[u8]> = input.split(|&byte| byte == b' ' || byte == 0).collect();
    let words = || words.iter().copied();

    for &algorithm in Algorithm::ALL {
        if let Ok((spec, _)) = parse::single(algorithm, &mut words()) {
            let outcome = spec.limit.evaluate(None, 1 << 50, spec.cost, Mode::Check);
            let decision = outcome.map(|outcome| outcome.decision);
            assert!(decision.is_ok_and(|it| it.allowed == (spec.cost <= it.limit)));
        }
    }

    let mut parsed = Vec::new();
    let result = parse::multi(words(), |position, _, ask| {
        parsed.push(position);
        match ask.by {
            parse::By::Spec(spec) => {
                let outcome = spec.limit.evaluate(None, 0, spec.cost, Mode::Force);
                outcome.map(|_| ())
            }
            parse::By::Policy { .. } => Ok(()),
        }
    });
    let mut keys = Vec::new();
    parse::multi_keys(words(), |position| keys.push(position));
    if result.is_ok() {
        assert_eq!(keys, parsed, "routing and checking agree on the keys");
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
