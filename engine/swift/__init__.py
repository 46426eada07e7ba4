"""Conversations with one pinned model: the settings of its catalogue entry, one seed, one sequence of state.

Named after Swift-Bonsai-2, whose entry has them all; nothing here is special to that model.
"""

from engine.swift.chat_session import PreparedChat, SwiftChatSession
from engine.swift.session import SwiftCompletion, SwiftSession

__all__ = ["PreparedChat", "SwiftChatSession", "SwiftCompletion", "SwiftSession"]
