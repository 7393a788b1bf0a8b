//! Asks the user which model agents should use.

use soong_tui::text;

use super::search::Candidate;
use crate::{
    exit::Failure,
    input::{Input, InputLine},
    interrupt::Interrupt,
    print,
};

/// Asks for a model by its number or name. Returns `None` if the user chooses none (Ctrl-C or
/// Ctrl-D).
pub(super) async fn ask(models: &[Candidate]) -> Result<Option<Candidate>, Failure> {
    let width = models
        .iter()
        .map(|model| text::width(&text::safe_line(&model.name)))
        .max()
        .unwrap_or(0);
    for (number, model) in (1..).zip(models) {
        let name = text::pad(&text::safe_line(&model.name), width);
        print::error_line(&format!(
            "{number:>4}  {name}  {}",
            text::safe_line(&model.origin)
        ));
    }
    let interrupt = Interrupt::listen();
    let mut input = Input::of_person()?;
    loop {
        let line = tokio::select! {
            line = input.next("model for agents, by number or name [1]: ", "") => line?,
            // A terminal that is not in raw mode makes a signal of Ctrl-C.
            () = interrupt.first() => return Ok(None),
        };
        let answer = match line {
            InputLine::Line(answer) => answer.trim().to_owned(),
            InputLine::Key(..) => continue,
            InputLine::Discarded | InputLine::Closed => return Ok(None),
        };
        match chosen(models, &answer) {
            Some(model) => return Ok(Some(model.clone())),
            None => print::error_line(&format!(
                "enter a number from 1 to {}, or the name of a model",
                models.len()
            )),
        }
    }
}

fn chosen<'a>(models: &'a [Candidate], answer: &str) -> Option<&'a Candidate> {
    let by_number = || models.get(answer.parse::<usize>().ok()?.checked_sub(1)?);
    match answer {
        "" => models.first(),
        name => models
            .iter()
            .find(|model| model.name == name)
            .or_else(by_number),
    }
}
