//! `run_experiment`: what the laboratory finds.

use super::{Effect, Tool, about, result};
use crate::mcp::call::Call;
use crate::mcp::control::{Ended, Experiment};
use rmcp::model::CallToolResult;

pub(super) const TOOL: Tool = Tool {
    name: "run_experiment",
    about: || {
        about::<Experiment>("run_experiment", "Run an experiment", DESCRIPTION, Effect::Adds)
            .with_output_schema::<Ended>()
    },
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Runs an experiment of the laboratory by starting strata-lab, and says how that ended and where the result lies. It may take \
from seconds to hours; what is done is kept when the call is cancelled, and the next call goes on with it. Over HTTP only \
where the person who started the server allowed it.";

async fn run(mut call: Call) -> Result<CallToolResult, String> {
    let which: Experiment = call.arguments()?;
    call.desk.rights.programs?;
    let ended = call.attend(|control, told| control.experiment(which, told)).await?;
    let Ended { name, exit_status, output_end, result: folder, seconds } = &ended;
    let status = exit_status.map_or_else(|| "ended by a signal".to_owned(), |code| format!("exit status {code}"));
    let place = folder.as_ref().map_or_else(String::new, |folder| format!(" The result is in {folder}."));
    let mut answer = result(format!("{name}: {status} after {seconds:.1} s.{place}\n\n{output_end}"), &ended)?;
    answer.is_error = Some(*exit_status != Some(0));
    Ok(answer)
}
