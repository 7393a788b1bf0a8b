//! Rules of a fault plan, and their text: at which occurrence of which point what happens.
//!
//! Pure: decides what happens, and does nothing. Random choices depend only on the seed and on how
//! often a point was reached, so thread scheduling does not change them.

use std::{fmt, str::FromStr, time::Duration};

use super::FaultPoint;

/// Reason why a text is not a valid plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaultRuleError {
    /// There is nothing between two commas.
    #[error(
        "an element is empty; use POINT[@N|@N..|%P][=kill|fail|delay:MS] or seed=NUMBER, separated by single commas"
    )]
    Empty,
    /// There is no point with this name.
    #[error("there is no fault point {name:?}; available: {}", FaultPoint::ALL.map(FaultPoint::as_str).join(", "))]
    Point {
        /// The name in the text.
        name: String,
    },
    /// The condition of a rule cannot be parsed.
    #[error(
        "in {element:?}, {text:?} is not a valid condition; use @N for the Nth time (N is 1 or more), @N.. for that \
         and all later times, or %P for a probability of P percent (P is above 0, at most 100)"
    )]
    When {
        /// The element of the list.
        element: String,
        /// The invalid part of it.
        text: String,
    },
    /// The action of a rule cannot be parsed.
    #[error(
        "in {element:?}, {text:?} is not a valid action; use kill, fail, or delay:MS (MS in milliseconds)"
    )]
    Action {
        /// The element of the list.
        element: String,
        /// The invalid part of it.
        text: String,
    },
    /// The seed is not a number.
    #[error("{text:?} is not a valid seed; use a whole number, such as seed=42")]
    Seed {
        /// The text of the seed.
        text: String,
    },
}

/// Action of a rule other than a delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Kill,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Do(Outcome),
    Delay(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    Always,
    /// The nth time, counted from 1.
    At(u64),
    /// The nth time and every time after it.
    From(u64),
    /// A probability in percent.
    Percent(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Rule {
    point: FaultPoint,
    when: When,
    action: Action,
}

/// The rules of a plan, and how often each point was reached.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    seed: u64,
    hit_counts: [u64; FaultPoint::ALL.len()],
}

impl Rules {
    /// Adds all rules of a text, or nothing if the text is invalid.
    pub(super) fn add(&mut self, text: &str) -> Result<(), FaultRuleError> {
        let mut rules = Vec::new();
        let mut seed = self.seed;
        for element in text.split(',').map(str::trim) {
            match element.strip_prefix("seed=") {
                Some(number) => {
                    seed = number.trim().parse().map_err(|_| FaultRuleError::Seed {
                        text: number.to_owned(),
                    })?;
                }
                None => rules.push(element.parse()?),
            }
        }
        self.rules.append(&mut rules);
        self.seed = seed;
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    pub(super) fn hit_count(&self, point: FaultPoint) -> u64 {
        self.hit_counts[point as usize]
    }

    /// Counts that a point is reached; returns the delay, and the action after it.
    pub(super) fn hit(&mut self, point: FaultPoint) -> (Duration, Option<Outcome>) {
        self.hit_counts[point as usize] += 1;
        let nth = self.hit_counts[point as usize];
        let mut delay = Duration::ZERO;
        let mut outcome = None;
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.point != point || !rule.when.applies(nth, || chance(self.seed, index, nth)) {
                continue;
            }
            match rule.action {
                Action::Delay(time) => delay += time,
                Action::Do(what) => outcome = outcome.or(Some(what)),
            }
        }
        (delay, outcome)
    }
}

impl When {
    fn applies(self, nth: u64, chance: impl Fn() -> f64) -> bool {
        match self {
            Self::Always => true,
            Self::At(at) => nth == at,
            Self::From(first) => nth >= first,
            Self::Percent(percent) => chance() * 100.0 < percent,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let count = |text: &str| text.parse().ok().filter(|nth| *nth > 0);
        match (text.strip_prefix('@'), text.strip_prefix('%')) {
            (Some(nth), _) => match nth.strip_suffix("..") {
                Some(first) => count(first).map(Self::From),
                None => count(nth).map(Self::At),
            },
            (None, Some(share)) => share
                .parse()
                .ok()
                .filter(|share| *share > 0.0 && *share <= 100.0)
                .map(Self::Percent),
            (None, None) => text.is_empty().then_some(Self::Always),
        }
    }
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "kill" => Some(Self::Do(Outcome::Kill)),
            "fail" => Some(Self::Do(Outcome::Fail)),
            _ => text
                .strip_prefix("delay:")?
                .parse()
                .ok()
                .map(|ms| Self::Delay(Duration::from_millis(ms))),
        }
    }
}

impl FromStr for Rule {
    type Err = FaultRuleError;

    fn from_str(element: &str) -> Result<Self, FaultRuleError> {
        if element.is_empty() {
            return Err(FaultRuleError::Empty);
        }
        let (index, action) = element.split_once('=').unwrap_or((element, "kill"));
        let point_text = index.trim();
        let action = action.trim();
        let (name, when) =
            point_text.split_at(point_text.find(['@', '%']).unwrap_or(point_text.len()));
        let element_text = || element.to_owned();
        Ok(Self {
            point: name.parse()?,
            when: When::parse(when).ok_or_else(|| FaultRuleError::When {
                element: element_text(),
                text: when.to_owned(),
            })?,
            action: Action::parse(action).ok_or_else(|| FaultRuleError::Action {
                element: element_text(),
                text: action.to_owned(),
            })?,
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.point.as_str())?;
        match self.when {
            When::Always => {}
            When::At(nth) => write!(f, "@{nth}")?,
            When::From(first) => write!(f, "@{first}..")?,
            When::Percent(percent) => write!(f, "%{percent}")?,
        }
        match self.action {
            Action::Do(Outcome::Kill) => f.write_str("=kill"),
            Action::Do(Outcome::Fail) => f.write_str("=fail"),
            Action::Delay(time) => write!(f, "=delay:{}", time.as_millis()),
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.rules.iter().enumerate() {
            write!(f, "{}{rule}", if index == 0 { "" } else { "," })?;
        }
        if self
            .rules
            .iter()
            .any(|rule| matches!(rule.when, When::Percent(_)))
        {
            write!(f, ",seed={}", self.seed)?;
        }
        Ok(())
    }
}

/// Returns a number in 0..1 that depends on the seed, the rule and the count of its point
/// (splitmix64).
fn chance(seed: u64, rule: usize, nth: u64) -> f64 {
    let mut mixed = seed;
    for part in [rule as u64, nth] {
        mixed = mixed.wrapping_add(part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
    }
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        let mut rules = Rules::default();
        rules.add(text).unwrap();
        rules
    }

    /// Returns the effects of a point's first ten occurrences: `.`, `k`, `f` or a digit for
    /// milliseconds.
    fn effects_of_ten_hits(rules: &mut Rules, point: FaultPoint) -> String {
        let letter = |(delay, outcome): (Duration, Option<Outcome>)| match outcome {
            Some(Outcome::Kill) => "k".to_owned(),
            Some(Outcome::Fail) => "f".to_owned(),
            None if delay.is_zero() => ".".to_owned(),
            None => delay.as_millis().to_string(),
        };
        (0..10).map(|_| letter(rules.hit(point))).collect()
    }

    #[test]
    fn rules_follow_their_text_and_round_trip() {
        for (text, shown, story_of_ended) in [
            ("ended", "ended=kill", "kkkkkkkkkk"),
            ("ended@3", "ended@3=kill", "..k......."),
            ("ended@3..=fail", "ended@3..=fail", "..ffffffff"),
            ("ended=delay:5", "ended=delay:5", "5555555555"),
            (
                "ended@2=delay:5,ended@2..=delay:2",
                "ended@2=delay:5,ended@2..=delay:2",
                ".722222222",
            ),
            (
                "ended@4=fail,ended@4..=kill",
                "ended@4=fail,ended@4..=kill",
                "...fkkkkkk",
            ),
            (" ended@9 = fail ", "ended@9=fail", "........f."),
            ("ended%100=fail", "ended%100=fail,seed=0", "ffffffffff"),
            (
                "flush=kill, run_tool@1",
                "flush=kill,run_tool@1=kill",
                "..........",
            ),
            ("seed=7", "", ".........."),
        ] {
            let mut rules = rules(text);
            assert_eq!(rules.to_string(), shown, "{text}");
            assert_eq!(
                effects_of_ten_hits(&mut rules, FaultPoint::Ended),
                story_of_ended,
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_rule_is_rejected_with_advice() {
        for (text, part) in [
            ("", "an element is empty"),
            ("ended,,flush", "an element is empty"),
            (
                "endet",
                "no fault point \"endet\"; available: before_append, ",
            ),
            ("ended @3", "no fault point"),
            ("=kill", "no fault point \"\""),
            ("ended@0", "\"@0\" is not a valid condition; use @N"),
            ("ended@x=kill", "in \"ended@x=kill\""),
            ("ended@1..3", "is not a valid condition"),
            ("ended%0", "is not a valid condition"),
            ("ended%101", "is not a valid condition"),
            ("ended%NaN", "is not a valid condition"),
            ("ended@-1", "is not a valid condition"),
            (
                "ended=explode",
                "\"explode\" is not a valid action; use kill, fail, or delay:MS",
            ),
            ("ended=", "\"\" is not a valid action"),
            ("ended=delay:", "is not a valid action"),
            ("ended=delay:-1", "is not a valid action"),
            ("seed=x", "\"x\" is not a valid seed"),
        ] {
            let mut rules = rules("flush@2");
            let error = rules.add(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert_eq!(
                rules.to_string(),
                "flush@2=kill",
                "{text}: nothing is added"
            );
        }
    }

    #[test]
    fn fault_points_parse_from_their_names() {
        for point in FaultPoint::ALL {
            assert_eq!(point.as_str().parse(), Ok(point));
        }
    }

    #[test]
    fn probability_is_deterministic_per_seed_and_accurate() {
        let count = |text: &str| {
            let mut rules = rules(text);
            (0..10_000)
                .map(|_| rules.hit(FaultPoint::Flush).1.is_some())
                .collect::<Vec<_>>()
        };
        let some = count("flush%1.5=fail,seed=42");
        assert_eq!(some, count("seed=42,flush%1.5=fail"));
        assert_ne!(some, count("flush%1.5=fail,seed=43"));
        let failed = some.iter().filter(|failed| **failed).count();
        assert!((100..200).contains(&failed), "{failed} of 10 000 at 1.5 %");
    }
}
